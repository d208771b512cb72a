// A counter in shared memory that the processes of a node increment and wait for: the barrier and
// the completion of node-local collectives.
//
// The count only increases; each user waits for its own target. Waiting ranks first poll the count,
// then sleep on a futex: a waiting rank that only calls sched_yield can keep a rank with work from
// running for hundreds of microseconds if there are more ranks than cores. Zeroed memory is a valid
// gate.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gaccd {

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

}  // namespace gaccd
