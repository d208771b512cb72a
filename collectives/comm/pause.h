// The pause between two looks at what no event announces: the progress of MPI or of NCCL.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace gaccd {

// Of one wait. Offers the core at first, so that a short wait ends at once; then sleeps 100 us: a
// waiting process that only offers its core takes half of it from one that computes.
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
