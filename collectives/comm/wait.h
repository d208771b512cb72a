// How a rank waits: for a word in memory, for a counter of its node, between two polls.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace gaccd {

// Waiting on a word of memory with a deadline, which std::atomic::wait does not offer. Linux only.
// Wake-ups may be spurious: check the condition after each.

// Waiters are threads of this process, or processes that share the memory.
enum class FutexScope { kThreads, kProcesses };

// Sleeps while the word holds `value`, until it is woken or `until` has passed.
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point until,
                FutexScope scope = FutexScope::kThreads);
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value);

void WakeAll(const std::atomic<std::uint32_t>& word, FutexScope scope = FutexScope::kThreads);

// A counter in shared memory that the processes of a node increment and wait for: the barrier and
// the completion of node-local collectives.
//
// The count only increases; each user waits for its own target. Waiting ranks first poll the count,
// then sleep on a futex: a waiting rank that only calls sched_yield can keep a rank with work from
// running for hundreds of microseconds if there are more ranks than cores. Zeroed memory is a valid
// gate.
struct alignas(128) NodeGate {
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint32_t> bell;      // changes when a target is reached
  std::atomic<std::uint32_t> sleepers;  // number of sleeping ranks; if 0, no wake-up is needed

  [[nodiscard]] bool Reached(std::uint64_t target) const {
    return count.load(std::memory_order_acquire) >= target;
  }
  // Adds n; the rank that reaches the target wakes the others. Writes before Add() are visible to
  // ranks that see the target reached.
  void Add(std::uint64_t n, std::uint64_t target);
  // Sleeps until the target is reached, at most until `until`; may return early.
  void Sleep(std::uint64_t target, std::chrono::steady_clock::time_point until);
};
static_assert(sizeof(NodeGate) == 128);

// The pause between polls of MPI or NCCL, whose progress no event signals.

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
