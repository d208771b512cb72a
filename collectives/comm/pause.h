// The pause between polls of MPI or NCCL, whose progress no event signals.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace gaccd {

// For one wait. First yields the core, so that a short wait ends at once; then sleeps 100 us per
// call, as a waiting process that only yields takes half of the core from one that computes.
class Pause {
 public:
  void Wait() {
    if (turns_ < kYields) {
      ++turns_;
      sched_yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }

 private:
  static constexpr int kYields = 200;
  static constexpr std::chrono::microseconds kSleep{100};

  int turns_ = 0;
};

}  // namespace gaccd
