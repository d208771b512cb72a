// Durations as the logs and the events have them.
#pragma once

#include <chrono>
#include <functional>

namespace gaccd {

// Reads the steady clock. Tests pass one of their own.
using NowFunction = std::function<std::chrono::steady_clock::time_point()>;

[[nodiscard]] inline double SecondsSince(
    std::chrono::steady_clock::time_point start,
    std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
  return std::chrono::duration<double>(now - start).count();
}

}  // namespace gaccd
