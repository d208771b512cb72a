// Sleeping on a word of memory, with a deadline: what std::atomic::wait does not offer.
// Linux only. Wake-ups may be spurious: look again after each.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gaccd {

// The waiters of a word: threads of this process, or processes that share its memory.
enum class FutexScope { kThreads, kProcesses };

// Sleeps until the word is woken, if it still holds `value`, at most until `until`.
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point until,
                FutexScope scope = FutexScope::kThreads);
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value);

void WakeAll(const std::atomic<std::uint32_t>& word, FutexScope scope = FutexScope::kThreads);

}  // namespace gaccd
