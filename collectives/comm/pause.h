// The pause between polls of MPI or NCCL, whose progress no event signals.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace gaccd {

// For one wait. First yields the core, so that a short wait ends at once; then sleeps 100 us per
// call, as a waiting process that only yields takes half of the core from one that computes. The
// yields end after a time, not a number: on a busy core each may last milliseconds.
class Pause {
 public:
  void Wait() {
    if (Clock::now() < end_of_yields_) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kYields{200};
  static constexpr std::chrono::microseconds kSleep{100};

  Clock::time_point end_of_yields_ = Clock::now() + kYields;
};

}  // namespace gaccd
