// Durations in seconds, as in logs and events.
#pragma once

#include <chrono>
#include <functional>

namespace gaccd {

// Reads the steady clock; tests replace it.
using NowFunction = std::function<std::chrono::steady_clock::time_point()>;

[[nodiscard]] inline double SecondsSince(
    std::chrono::steady_clock::time_point start,
    std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
  return std::chrono::duration<double>(now - start).count();
}

}  // namespace gaccd
