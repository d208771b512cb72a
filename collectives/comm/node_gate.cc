#include "collectives/comm/node_gate.h"

#include "collectives/comm/futex.h"

namespace gaccd {

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
