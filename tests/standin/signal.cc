#include "tests/standin/signal.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <deque>

#include "tests/standin/settings.h"

namespace gaccd::standin {

void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void FutexWake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
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
