// A counter in shared memory that the processes of a node add to and wait for: the barrier and the
// "all of the work is done" of the node-local collectives.
//
// The count only grows; each user waits for a target of its own. Waiting ranks first look at the
// count, then sleep on a futex: a waiting rank that only offers its core by sched_yield keeps a
// rank that still has work from running for hundreds of microseconds when ranks outnumber cores.
// Zeroed memory is a valid gate.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gaccd {

struct alignas(128) NodeGate {
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint32_t> bell;      // changes when a target is reached
  std::atomic<std::uint32_t> sleepers;  // nobody is woken when nobody sleeps

  [[nodiscard]] bool Reached(std::uint64_t target) const {
    return count.load(std::memory_order_acquire) >= target;
  }
  // Adds n; who reaches the target wakes the others. What was written before Add() is visible to
  // those who see the target reached.
  void Add(std::uint64_t n, std::uint64_t target);
  // Sleeps until the target is reached, at most until `until`; may return early.
  void Sleep(std::uint64_t target, std::chrono::steady_clock::time_point until);
};
static_assert(sizeof(NodeGate) == 128);

}  // namespace gaccd
