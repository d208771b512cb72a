// CrashHandler: a signal that ends the process (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) leaves a
// record, crash/r00017.json, and a line on stderr, and then does what it would have done: core
// dump, sanitizer report.
//
// A SIGBUS in a mapped file of data is an error of the data: the file was made shorter, or the disk
// could not give it. Record and line name file and byte, and the process exits with 65.
//
// Everything is prepared beforehand, because a signal handler may neither allocate nor lock. The
// handlers run on stacks of their own, so that a stack overflow is recorded, too (on the thread
// that made this object and on those of StartThread()). It also turns the two signals of a failing
// write into plain errors for as long as it lives: SIGXFSZ (file size limit) and SIGPIPE (nobody
// reads stdout any more).
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/base/thread.h"
#include "daemon/data/mapped_file.h"
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
  static constexpr std::array kIgnored{SIGXFSZ, SIGPIPE};

  CrashHandler(std::string path, const RunIdentity& who, const Place& place, unsigned mode);
  static void OnSignal(int signal, siginfo_t* info, void* context);
  void Write(int signal, const MappedPlace& mapped) const;
  void Restore();

  const std::string path_;
  const std::string who_;
  const Place& place_;
  const unsigned mode_;
  std::string before_time_;  // the record's text around its time stamp
  std::string after_time_;
  SignalStack stack_;
  std::array<struct sigaction, kFatalSignals.size()> old_fatal_{};
  std::array<struct sigaction, kIgnored.size()> old_ignored_{};

  static std::atomic<CrashHandler*> active_;
  static std::atomic<bool> writing_;
};

}  // namespace gaccd
