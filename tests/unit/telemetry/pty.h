// A pseudo-terminal of one test: what a person would see.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "collectives/base/files.h"

namespace gaccd {

class Pty {
 public:
  explicit Pty(int columns) {
    int master = -1;
    int slave = -1;
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    if (::openpty(&master, &slave, nullptr, nullptr, &size) != 0) return;
    master_ = FileDescriptor(master);
    slave_ = FileDescriptor(slave);
  }

  [[nodiscard]] int slave() const { return slave_.get(); }

  // As typed by a person: "\x13" is Ctrl-S, "\x11" Ctrl-Q.
  void Type(const std::string& keys) const {
    [[maybe_unused]] const ssize_t typed = ::write(master_.get(), keys.data(), keys.size());
  }

  // What was written so far.
  [[nodiscard]] std::string Read() const {
    std::string text;
    pollfd poll{.fd = master_.get(), .events = POLLIN, .revents = 0};
    char buffer[4096];
    while (::poll(&poll, 1, 20) == 1) {
      const ssize_t got = ::read(master_.get(), buffer, sizeof(buffer));
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  FileDescriptor master_;
  FileDescriptor slave_;
};

}  // namespace gaccd
