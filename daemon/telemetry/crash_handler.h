// CrashHandler: on a fatal signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT), writes a record,
// crash/r00017.json, and a line to stderr, and then continues with the default action: core dump,
// sanitizer report.
//
// A SIGBUS in a mapped data file is a data error: the file was truncated, or the disk could not
// read it. Record and line contain file and byte, and the process exits with 65.
//
// Everything is prepared in advance, because a signal handler may neither allocate nor lock. The
// handlers run on alternate stacks, so that a stack overflow is recorded, too (on the thread that
// created this object and on those of StartThread()). While it exists, the two signals of failing
// writes are plain errors: SIGXFSZ (file size limit) and SIGPIPE (no reader of stdout).
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

// The current state of a rank. Written by its main thread, read by a signal handler.
struct RankPosition {
  std::atomic<const char*> phase{"start"};  // a literal
  std::atomic<std::int64_t> micro_step{0};
  std::atomic<std::int64_t> step{0};
};

class CrashHandler {
 public:
  // path: of the record; its folder exists. `place` must outlive this. Null if the process already
  // has one (ranks that are threads share that of the first).
  static std::unique_ptr<CrashHandler> Install(const std::string& path, const RunIdentity& who,
                                               const RankPosition& place, unsigned mode);
  // Restores the previous signal handlers.
  ~CrashHandler();
  CrashHandler(const CrashHandler&) = delete;
  CrashHandler& operator=(const CrashHandler&) = delete;

 private:
  static constexpr std::array kIgnored{SIGXFSZ, SIGPIPE};

  CrashHandler(std::string path, const RunIdentity& who, const RankPosition& place, unsigned mode);
  static void OnSignal(int signal, siginfo_t* info, void* context);
  void Write(int signal, const MappedPlace& mapped) const;
  void Restore();

  const std::string path_;
  const std::string who_;
  const RankPosition& place_;
  const unsigned mode_;
  std::string before_time_;  // the text of the record before and after its time stamp
  std::string after_time_;
  SignalStack stack_;
  std::array<struct sigaction, kFatalSignals.size()> old_fatal_{};
  std::array<struct sigaction, kIgnored.size()> old_ignored_{};

  static std::atomic<CrashHandler*> active_;
  static std::atomic<bool> writing_;
};

}  // namespace gaccd
