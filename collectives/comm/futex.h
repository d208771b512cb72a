// Waiting on a word of memory with a deadline, which std::atomic::wait does not offer. Linux only.
// Wake-ups may be spurious: check the condition after each.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gaccd {

// Waiters are threads of this process, or processes that share the memory.
enum class FutexScope { kThreads, kProcesses };

// Sleeps while the word holds `value`, until it is woken or `until` has passed.
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point until,
                FutexScope scope = FutexScope::kThreads);
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value);

void WakeAll(const std::atomic<std::uint32_t>& word, FutexScope scope = FutexScope::kThreads);

}  // namespace gaccd
