#include "collectives/comm/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace gaccd {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

int Flags(FutexScope scope) { return scope == FutexScope::kThreads ? FUTEX_PRIVATE_FLAG : 0; }

void Wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* until,
          FutexScope scope) {
  // The BITSET form takes an absolute time of CLOCK_MONOTONIC, the clock of steady_clock.
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | Flags(scope), value, until, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point until, FutexScope scope) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch());
  const timespec absolute{static_cast<time_t>(since.count() / 1'000'000'000),
                          static_cast<long>(since.count() % 1'000'000'000)};
  Wait(word, value, &absolute, scope);
}

void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  Wait(word, value, nullptr, FutexScope::kThreads);
}

void WakeAll(const std::atomic<std::uint32_t>& word, FutexScope scope) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE | Flags(scope), INT_MAX, nullptr, nullptr, 0);
}

void NodeGate::Add(std::uint64_t n, std::uint64_t target) {
  const std::uint64_t before = count.fetch_add(n, std::memory_order_acq_rel);
  if (before >= target || before + n < target) return;
  bell.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) WakeAll(bell, FutexScope::kProcesses);
}

// The bell is read before the count: if the target is reached in between, the bell has changed and
// the futex does not sleep. The sleeper is counted before that, so that the waker sees it.
void NodeGate::Sleep(std::uint64_t target, std::chrono::steady_clock::time_point until) {
  const std::uint32_t heard = bell.load(std::memory_order_acquire);
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (!Reached(target)) SleepWhile(bell, heard, until, FutexScope::kProcesses);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace gaccd
