// A steady clock for tests, one per thread: it advances only where its thread says so.
#pragma once

#include <chrono>

namespace gaccd::tests {

class ThreadClock {
 public:
  static void Advance(std::chrono::nanoseconds by) { elapsed_ += by; }
  // The same time as that of the system once Advance() added `later`: signals come by that one.
  static void MeetSystemClock(std::chrono::nanoseconds later) {
    elapsed_ = std::chrono::steady_clock::now().time_since_epoch() - later;
  }
  // A NowFunction.
  static std::chrono::steady_clock::time_point Now() {
    return std::chrono::steady_clock::time_point(elapsed_);
  }

 private:
  static inline thread_local std::chrono::nanoseconds elapsed_{0};
};

}  // namespace gaccd::tests
