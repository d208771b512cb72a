// Signal: a number that grows; others wait until it has reached theirs. Reaching it orders memory,
// as an event does between streams; looking too early orders nothing (see settings.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace gaccd::standin {

class Signal {
 public:
  // REQUIRES: below 2^31. May be destroyed by those who waited before this returns.
  void Reach(std::uint32_t value);
  void WaitFor(std::uint32_t value);
  bool Reached(std::uint32_t value) {
    if (word_.load(std::memory_order_relaxed) / 2 < value) return false;
    (void)word_.load(std::memory_order_acquire);
    return true;
  }

 private:
  // 2 x the value; + 1: somebody sleeps until it changes. One word, so that no wake-up is lost
  // without an order on the way back.
  std::atomic<std::uint32_t> word_{0};
};

// One point in the work of a stream. Never freed: counting the users would order the streams.
struct Point {
  Signal signal;  // reaches 1
  std::int64_t nanoseconds = 0;

  void Reach();
};
// Used under the runtime's lock.
Point* NewPoint();

}  // namespace gaccd::standin
