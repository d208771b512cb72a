#include "tests/standin/settings.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/standin/standin.h"

namespace gaccd::standin {
namespace {

constinit std::atomic<std::uint64_t> delay_seed{0};
constinit std::atomic<int> delay_us{0};
constinit std::atomic<std::uint64_t> threads_seen{0};
constinit std::atomic<bool> is_virtual{false};
constinit std::atomic<int> max_pending{kMaxPending};
constinit std::atomic<bool> events_wait{false};
constinit std::atomic<std::int64_t> spent_ns{0};

// splitmix64
std::uint64_t Next(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15U);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// A number of this thread's own sequence under the present seed.
std::uint64_t Random() {
  static thread_local const std::uint64_t self =
      threads_seen.fetch_add(1, std::memory_order_relaxed) + 1;
  static thread_local std::uint64_t seed = 0;
  static thread_local std::uint64_t state = self;
  const std::uint64_t wanted = delay_seed.load(std::memory_order_relaxed);
  if (seed != wanted) {
    seed = wanted;
    state = wanted * 0x2545f4914f6cdd1dU + self;
  }
  return Next(state);
}

}  // namespace

void SetDelaySettings(std::uint64_t seed, int max_microseconds) {
  delay_seed.store(seed, std::memory_order_relaxed);
  delay_us.store(max_microseconds, std::memory_order_relaxed);
}

void SetMaxPending(int pieces) { max_pending.store(pieces, std::memory_order_relaxed); }
int MaxPending() { return max_pending.load(std::memory_order_relaxed); }
void SetEventsWait(bool wait) { events_wait.store(wait, std::memory_order_relaxed); }
bool EventsWait() { return events_wait.load(std::memory_order_relaxed); }

void MaybeDelay() {
  const int most = delay_us.load(std::memory_order_relaxed);
  if (most <= 0) return;
  const std::uint64_t random = Random();
  if ((random & 1U) == 0) return;  // half of the work is not late
  std::this_thread::sleep_for(
      std::chrono::microseconds((random >> 8) % (static_cast<std::uint64_t>(most) + 1)));
}

VirtualClock::VirtualClock() {
  spent_ns.store(0, std::memory_order_relaxed);
  is_virtual.store(true, std::memory_order_relaxed);
}

VirtualClock::~VirtualClock() { is_virtual.store(false, std::memory_order_relaxed); }

void Spend(int microseconds) {
  if (microseconds <= 0) return;
  if (!is_virtual.load(std::memory_order_relaxed)) {
    return std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  }
  spent_ns.fetch_add(std::int64_t{1000} * microseconds, std::memory_order_relaxed);
}

std::int64_t DeviceNanoseconds() {
  if (is_virtual.load(std::memory_order_relaxed)) return spent_ns.load(std::memory_order_relaxed);
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool RunBackwards() { return delay_us.load(std::memory_order_relaxed) > 0 && (Random() & 2U) != 0; }

}  // namespace gaccd::standin
