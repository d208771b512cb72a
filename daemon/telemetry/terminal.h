// Is there a person watching, how wide is their window, and lines for them that nobody waits for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"

namespace gaccd {

class Terminal {
 public:
  // The terminal of `fd`, which must outlive it; none for files, pipes and TERM=dumb.
  // mpirun gives its ranks a pseudo-terminal of width 0 even when its own output goes to a file;
  // then what counts is the output of the process above.
  static std::optional<Terminal> Detect(int fd);

  // Any file of `fd`, treated as a terminal.
  static Terminal Assume(int fd) { return Terminal(fd, FileDescriptor()); }

  [[nodiscard]] int fd() const { return fd_; }
  // Now; 80 when the terminal does not say.
  [[nodiscard]] int Columns() const;
  // False while output would block, for example after Ctrl-S.
  [[nodiscard]] bool Ready() const;

 private:
  Terminal(int fd, FileDescriptor outer) : fd_(fd), outer_(std::move(outer)) {}

  int fd_;
  FileDescriptor outer_;  // asked for the width, if valid
};

// Text for people. A terminal may stop reading (Ctrl-S, a lost connection): what it does not take
// now waits in memory and is written by a later call, at most kMaxPendingBytes of it; more is
// dropped, and a line says how many texts. Writes to a file or a pipe wait, as usual. Thread-safe.
class TerminalOutput {
 public:
  static constexpr std::size_t kMaxPendingBytes = std::size_t{64} << 10;
  // What the destructor gives a text that waits.
  static constexpr std::chrono::milliseconds kPatience{500};

  // `fd` must outlive it.
  explicit TerminalOutput(int fd) : fd_(fd) {}
  ~TerminalOutput();
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

  // Never waits for a terminal.
  void Write(std::string_view text);
  // Tries to write what waits; whether nothing does any more.
  bool Flush();

 private:
  // REQUIRES: mutex_ is held. How much of `text` the terminal takes now; all of it when it is gone.
  std::size_t WriteSome(std::string_view text);
  void FlushLocked();
  // The terminal of fd_ without waiting; fd_ itself where it cannot be opened anew.
  int NonBlockingFd();

  const int fd_;
  std::mutex mutex_;
  FileDescriptor opened_;
  std::uint64_t device_ = 0;  // of opened_
  std::string pending_;
  std::int64_t dropped_ = 0;  // since it was last said
};

// The locale's character set is UTF-8: LC_ALL, else LC_CTYPE, else LANG says so. Values may be
// null.
[[nodiscard]] bool IsUtf8Locale(const char* lc_all, const char* lc_ctype, const char* lang);

}  // namespace gaccd
