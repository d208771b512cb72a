// Signal: a number that grows; others wait until it has reached theirs. Reaching it orders memory,
// as an event does between streams; looking too early orders nothing (see settings.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace gaccd::standin {

// FUTEX_WAIT and FUTEX_WAKE of this process; std::atomic::wait would order more than we want.
void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t seen);
void FutexWake(std::atomic<std::uint32_t>& word);

class Signal {
 public:
  void Reach(std::uint32_t value) {
    value_.store(value, std::memory_order_release);
    FutexWake(value_);
  }
  void WaitFor(std::uint32_t value) {
    for (;;) {
      const std::uint32_t seen = value_.load(std::memory_order_relaxed);
      if (seen >= value) break;
      FutexWait(value_, seen);
    }
    (void)value_.load(std::memory_order_acquire);
  }
  bool Reached(std::uint32_t value) {
    if (value_.load(std::memory_order_relaxed) < value) return false;
    (void)value_.load(std::memory_order_acquire);
    return true;
  }

 private:
  std::atomic<std::uint32_t> value_{0};
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
