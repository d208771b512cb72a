#include "tests/standin/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <deque>

#include "tests/standin/settings.h"

namespace gaccd::standin {

// Calls of the kernel: std::atomic::wait would order more than we want.
void Signal::Reach(std::uint32_t value) {
  // Afterwards only the address is used.
  if (word_.exchange(2 * value, std::memory_order_release) % 2 == 0) return;
  syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Signal::WaitFor(std::uint32_t value) {
  std::uint32_t seen = word_.load(std::memory_order_relaxed);
  while (seen / 2 < value) {
    if (seen % 2 == 1 || word_.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed)) {
      syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen | 1U, nullptr, nullptr, 0);
      seen = word_.load(std::memory_order_relaxed);
    }
  }
  (void)word_.load(std::memory_order_acquire);
}

void Point::Reach() {
  nanoseconds = DeviceNanoseconds();
  signal.Reach(1);
}

Point* NewPoint() {
  static auto* points = new std::deque<Point>;
  return &points->emplace_back();
}

}  // namespace gaccd::standin
