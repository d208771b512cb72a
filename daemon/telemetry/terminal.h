// Is there a person watching, and how wide is their window.
#pragma once

#include <optional>
#include <string_view>

#include "collectives/base/files.h"

namespace gaccd {

class Terminal {
 public:
  // The terminal behind `fd`, which must outlive it; none for files, pipes and TERM=dumb.
  // mpirun gives its ranks a pseudo-terminal of width 0 even when its own output goes to a file;
  // then what counts is the output of the process above.
  static std::optional<Terminal> Detect(int fd);

  // Whatever is behind `fd`, treated as a terminal.
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

// The locale's character set is UTF-8: LC_ALL, else LC_CTYPE, else LANG says so. Values may be
// null.
[[nodiscard]] bool IsUtf8Locale(const char* lc_all, const char* lc_ctype, const char* lang);

}  // namespace gaccd
