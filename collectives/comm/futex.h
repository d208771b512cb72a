// Sleeping on a word of memory, with a deadline: what std::atomic::wait does not offer.
// Linux only; between threads of one process. Wake-ups may be spurious: look again after each.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace gaccd {

// Sleeps until the word is woken, if it still holds `value`, at most until `until`.
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point until);
void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value);

void WakeAll(const std::atomic<std::uint32_t>& word);

}  // namespace gaccd
