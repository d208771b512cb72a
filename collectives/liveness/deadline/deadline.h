// Deadline: the time budget of one wait of a collective operation.
//
//   0 ............. 0.70 bound ......... 0.85 bound ......... bound
//   wait for peers  | name the missing    | return an error, Abort, exit
//
// Time in which this process did not run (suspended by SLURM, stopped in a debugger) does not
// count: a gap of more than kPause between two calls extends the deadline, so that a suspended job
// is not considered hung. Not thread-safe. Does not use MPI: shared by all communicators.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/base/result.h"

namespace gaccd {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Millis = std::chrono::milliseconds;

  static constexpr double kWaitShare = 0.70;
  static constexpr double kNamingShare = 0.85;
  static constexpr Millis kPause{1'000};

  explicit Deadline(Millis bound, Clock::time_point now = Clock::now())
      : bound_(bound), start_(now), last_poll_(now) {}

  // Whether peers that have not arrived count as missing. Call it in the waiting loop.
  [[nodiscard]] bool PeersAreLate(Clock::time_point now = Clock::now()) {
    return Elapsed(now) >= Share(kWaitShare);
  }
  // Time left after that for finding the missing ranks.
  [[nodiscard]] Clock::duration TimeToFindMissingRanks() const {
    return Share(kNamingShare - kWaitShare);
  }

  // For waits on a condition variable; includes the pauses so far.
  [[nodiscard]] Clock::time_point late_at() const { return start_ + Share(kWaitShare); }
  // Duration of this operation without pauses.
  [[nodiscard]] Clock::duration Elapsed(Clock::time_point now = Clock::now()) {
    const Clock::duration gap = now - last_poll_;
    if (gap > kPause) start_ += gap;
    last_poll_ = std::max(last_poll_, now);
    return now - start_;
  }

 private:
  [[nodiscard]] Clock::duration Share(double share) const {
    return std::chrono::duration_cast<Clock::duration>(bound_ * share);
  }

  Millis bound_;
  Clock::time_point start_;
  Clock::time_point last_poll_;
};

// Interrupt: ends the waits of a communicator from another thread, with a reason, for example when
// the heartbeat has found a rank lost. Raised once; thread-safe. A check costs one atomic load.
class Interrupt {
 public:
  // The first reason is kept. REQUIRES: !reason.ok().
  void Raise(const Status& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.ok()) reason_ = reason;
    raised_.store(true, std::memory_order_release);
  }

  // OK until it is raised.
  [[nodiscard]] Status status() const {
    if (!raised_.load(std::memory_order_acquire)) return Status::Ok();
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  Status reason_;
};

// ExitTimer: ends the process if a call does not return in time, for calls that may hang (MPI_Init,
// MPI_Finalize, MPI_Abort, collective set-up calls without a non-blocking form). Unless the timer
// is destroyed in time, it prints a message and exits without clean-up.

class ExitTimer {
 public:
  // `message` is written to stderr as one line, for which a second is left. If no thread can be
  // created there is no limit.
  ExitTimer(std::chrono::milliseconds limit, int exit_code, std::string message);
  ~ExitTimer();
  ExitTimer(const ExitTimer&) = delete;
  ExitTimer& operator=(const ExitTimer&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_time_ = false;
  std::thread thread_;
};

}  // namespace gaccd
