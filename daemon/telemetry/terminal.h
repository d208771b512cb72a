// Detection of a terminal and its width, and output for users that never blocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "daemon/telemetry/line_writer.h"

namespace gaccd {

class Terminal {
 public:
  // The terminal of `fd`, which must outlive it; empty for files, pipes and TERM=dumb. mpirun gives
  // its ranks a pseudo-terminal of width 0 even if its own output goes to a file; then the output
  // of the parent process counts.
  static std::optional<Terminal> Detect(int fd);

  // Treats any `fd` as a terminal.
  static Terminal Assume(int fd) { return Terminal(fd, FileDescriptor()); }

  [[nodiscard]] int fd() const { return fd_; }
  // Current width; 80 if unknown.
  [[nodiscard]] int Columns() const;
  // False while output would block, for example after Ctrl-S.
  [[nodiscard]] bool Ready() const;

 private:
  Terminal(int fd, FileDescriptor outer) : fd_(fd), outer_(std::move(outer)) {}

  int fd_;
  FileDescriptor outer_;  // used for the width, if valid
};

// Output of text for users. A terminal may stop reading (Ctrl-S, a lost connection): text that it
// does not accept is kept in memory, up to kMaxPendingBytes, and written by a later call; more is
// dropped, and a line contains the number of dropped texts. The same for a file or a pipe, whose
// file system or reader may stop: a write waits up to kPatience, and later ones do not wait until
// that one is done. Thread-safe.
class TerminalOutput {
 public:
  static constexpr std::size_t kMaxPendingBytes = std::size_t{64} << 10;
  // How long a write to a file or a pipe, and the destructor for pending text, wait.
  static constexpr std::chrono::milliseconds kPatience{500};

  // `fd` must outlive it.
  explicit TerminalOutput(int fd) : fd_(fd) {}
  ~TerminalOutput();
  TerminalOutput(const TerminalOutput&) = delete;
  TerminalOutput& operator=(const TerminalOutput&) = delete;

  // Whole lines if fd is no terminal. Never waits for a terminal.
  void Write(std::string_view text);
  // Tries to write pending text; returns whether none is left.
  bool Flush();

 private:
  // REQUIRES: mutex_ is held. Returns how many bytes of `text` the terminal accepted; all of them
  // if it is gone.
  std::size_t WriteSome(std::string_view text);
  void FlushLocked();
  // Finds out what fd_ is, again if it is redirected. Nothing here waits for a file system.
  void Detect();
  // A non-blocking descriptor of the terminal of fd_; fd_ itself if it cannot be reopened.
  int NonBlockingFd();

  const int fd_;
  std::mutex mutex_;
  FileDescriptor opened_;
  std::uint64_t device_ = 0;  // of opened_
  std::string pending_;
  std::int64_t dropped_ = 0;  // since the last report
  // What fd_ refers to, by /proc; nothing before the first write.
  std::optional<std::string> target_;
  bool is_terminal_ = false;
  std::unique_ptr<LineWriter> file_;  // if fd_ is no terminal
};

// Whether the locale's character set is UTF-8, according to LC_ALL, else LC_CTYPE, else LANG.
// Values may be null.
[[nodiscard]] bool IsUtf8Locale(const char* lc_all, const char* lc_ctype, const char* lang);

}  // namespace gaccd
