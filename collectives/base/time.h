// Durations in seconds and times, as in logs and events.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace gaccd {

// Reads the steady clock; tests replace it.
using NowFunction = std::function<std::chrono::steady_clock::time_point()>;

[[nodiscard]] inline double SecondsSince(
    std::chrono::steady_clock::time_point start,
    std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
  return std::chrono::duration<double>(now - start).count();
}

// Times in the files of a run.

using WallTime = std::chrono::system_clock::time_point;

// Parses "2026-11-20T03:04:05.123456Z", as written by Timestamp(); nullopt for other text.
[[nodiscard]] std::optional<WallTime> ParseTimestamp(std::string_view text);

// Since 1970.
[[nodiscard]] inline double SecondsSinceEpoch(WallTime at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}
[[nodiscard]] inline std::int64_t NanosecondsSinceEpoch(WallTime at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}
[[nodiscard]] inline double SecondsBetween(WallTime from, WallTime to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace gaccd
