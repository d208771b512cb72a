// CrashHandler: a signal that ends the process (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) leaves a
// record, crash/r00017.json, and then does what it would have done: core dump, sanitizer report.
//
// Of a SIGBUS in a mapped file of data it names file and byte: the file was made shorter, or the
// disk could not give it.
//
// Everything is prepared beforehand, because a signal handler may neither allocate nor lock. The
// handlers run on a stack of their own, so that a stack overflow is recorded, too (on the thread
// that made this object). It also turns the two signals of a failing write into plain errors for as
// long as it lives: SIGXFSZ (file size limit) and SIGPIPE (nobody reads stdout any more).
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/telemetry/events.h"

namespace gaccd {

// What a rank does now. Written by its main thread, read by a signal handler.
struct Place {
  std::atomic<const char*> phase{"start"};  // a literal
  std::atomic<std::int64_t> micro_step{0};
  std::atomic<std::int64_t> step{0};
};

class CrashHandler {
 public:
  // `path` is where the record goes; its folder exists. `place` must outlive this. Null when the
  // process has one already: ranks that are threads, of which the first is named.
  static std::unique_ptr<CrashHandler> Install(const std::string& path, const RunIdentity& who,
                                               const Place& place, unsigned mode);
  // Gives back the signals as they were.
  ~CrashHandler();
  CrashHandler(const CrashHandler&) = delete;
  CrashHandler& operator=(const CrashHandler&) = delete;

 private:
  static constexpr std::array kFatal{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  static constexpr std::array kIgnored{SIGXFSZ, SIGPIPE};
  static constexpr std::size_t kStackBytes = 64 << 10;

  CrashHandler(std::string path, const RunIdentity& who, const Place& place, unsigned mode);
  static void OnSignal(int signal, siginfo_t* info, void* context);
  void Write(int signal, const void* address) const;
  void Restore();

  const std::string path_;
  const Place& place_;
  const unsigned mode_;
  std::string before_time_;  // the record's text around its time stamp
  std::string after_time_;
  std::vector<std::byte> stack_;
  stack_t old_stack_{};
  std::array<struct sigaction, kFatal.size()> old_fatal_{};
  std::array<struct sigaction, kIgnored.size()> old_ignored_{};

  static std::atomic<CrashHandler*> active_;
};

}  // namespace gaccd
