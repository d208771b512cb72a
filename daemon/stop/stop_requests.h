// Why a rank asks to stop or to save: signals, files in the run folder, the end of the job.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/thread.h"

namespace gaccd {

// StopSignals: signals to a run, combined into one request, which the trainer queries in every
// phase. A handler only sets a flag; the trainer makes all ranks act alike, by summing the requests
// in a reduction. Handlers run on an alternate stack, because oneDNN's f32 products (before 3.12)
// point the stack pointer into a heap buffer, which a handler's frame would overwrite (issue 4845
// of uxlfoundation/oneDNN).
//
//   SIGTERM, SIGUSR1, SIGUSR2           stop: save if there is time, exit to be requeued
//   (--stop-signals)
//   the same again, or SIGINT twice     stop now: exit without saving
//                                       (within kBurst it is the same request: one scancel reaches
//                                       a rank through slurmstepd and through srun)
//   SIGHUP                              save and continue
//   SIGINT                              stop
enum class StopRequest : std::uint8_t { kNone, kSave, kStop, kStopNow };

// "USR2,TERM" -> signal numbers. kUsage, quoting the name: none of TERM, USR1, USR2, ALRM, XCPU.
Result<std::vector<int>> ParseSignals(std::string_view names);
[[nodiscard]] std::string SignalName(int signal);  // "SIGUSR2"

// One per process. Created early, so that a signal during start-up is not lost. request() is
// thread-safe; other functions are used by the thread that created it, the only one to receive
// signals (see StartThread()). A CrashHandler created after it on that thread must end before it.
class StopSignals {
 public:
  static constexpr std::chrono::milliseconds kBurst{2000};
  // burst: for tests. A second SIGINT counts after a twentieth of it: a user presses Ctrl-C twice.
  static Result<std::unique_ptr<StopSignals>> Install(const std::vector<int>& stop_signals,
                                                      std::chrono::milliseconds burst = kBurst);
  // Restores the previous handlers.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] StopRequest request() const;
  // The last signal that requested a stop; 0: none.
  [[nodiscard]] int stop_signal() const;
  // Whether this signal requested a stop.
  [[nodiscard]] bool was_received(int signal) const;
  // Time of the first SIGTERM; empty: none.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> term_time() const;
  // A request to save is fulfilled and cleared. Requests to stop are kept.
  void Saved();

 private:
  StopSignals() = default;

  struct Old {
    int signal;
    struct sigaction action;
  };
  SignalStack stack_;
  std::vector<Old> old_;
};

// RequestFiles: the files STOP and SAVE in the run folder, requests by an operator without a
// signal. One rank checks them once per second with stat(), on a separate thread: the folder is on
// a shared file system, which may not respond for a while, and training does not wait for it.

// The functions must outlive the thread, which may be abandoned.
struct RequestFilesOptions {
  // Called by the thread with a message for users: SAVE was served, but its file cannot be removed.
  // May be empty.
  std::function<void(const std::string&)> warn = {};
  std::chrono::milliseconds pause{1000};
  // For tests: whether a file exists. Empty: lstat().
  std::function<bool(const std::string& path)> exists = {};
};

// request() and Saved() are used by one thread; they do not wait for the disk.
class RequestFiles {
 public:
  // How long ~RequestFiles() waits for a check in progress; a hanging thread is abandoned.
  static constexpr std::chrono::milliseconds kPatience{500};

  // run_dir empty: no files, request() is always kNone. Waits up to a second for the first check,
  // so that an existing STOP is detected at once.
  explicit RequestFiles(std::string run_dir, RequestFilesOptions options = {});
  ~RequestFiles();
  RequestFiles(const RequestFiles&) = delete;
  RequestFiles& operator=(const RequestFiles&) = delete;

  // kStop or kSave while the file exists, according to the last check.
  [[nodiscard]] StopRequest request() const;
  // SAVE was served and will be removed. STOP is kept, so that a requeued attempt stops too.
  void Saved();

 private:
  struct State;  // shared with the thread

  std::shared_ptr<State> state_;  // null: no files
  std::unique_ptr<WorkerThread> worker_;
};

// How long this process may still run, and whether a save fits into that time. Pure functions.
struct TimeLeft {
  using Seconds = std::chrono::duration<double>;

  // Until SLURM_JOB_END_TIME; empty outside SLURM or without a limit.
  std::optional<Seconds> job;
  // The remaining grace period after SIGTERM: SLURM's KillWait is 30 s, a partition's GraceTime may
  // be shorter; --term-budget sets the assumed time. Empty before SIGTERM: other signals announce
  // an end that is in SLURM_JOB_END_TIME.
  std::optional<Seconds> grace;

  // The minimum of both; empty: no known end.
  [[nodiscard]] std::optional<Seconds> least() const;
};

// job_end: SLURM_JOB_END_TIME on the steady clock, which is never adjusted. since_term: time since
// the first SIGTERM; empty: none.
TimeLeft FindTimeLeft(std::optional<std::chrono::steady_clock::time_point> job_end,
                      std::chrono::steady_clock::time_point now,
                      std::optional<TimeLeft::Seconds> since_term, TimeLeft::Seconds term_budget);

// The time that should be left at the start of a save that took (or is expected to take) `save`:
// half of it and a second in reserve, as file systems are slowest when all ranks save.
[[nodiscard]] TimeLeft::Seconds NeededForSave(TimeLeft::Seconds save);
// Whether that much time is left, or no end is known.
[[nodiscard]] bool SaveFits(const TimeLeft& left, TimeLeft::Seconds save);

}  // namespace gaccd
