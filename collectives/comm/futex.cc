#include "collectives/comm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace gaccd {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void Wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, const timespec* until) {
  // The BITSET form takes an absolute time of CLOCK_MONOTONIC, which is what steady_clock shows.
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value, until, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                std::chrono::steady_clock::time_point until) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch());
  const timespec absolute{static_cast<time_t>(since.count() / 1'000'000'000),
                          static_cast<long>(since.count() % 1'000'000'000)};
  Wait(word, value, &absolute);
}

void SleepWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  Wait(word, value, nullptr);
}

void WakeAll(const std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gaccd
