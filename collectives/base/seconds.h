// Durations as the logs and the events have them.
#pragma once

#include <chrono>

namespace gaccd {

[[nodiscard]] inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace gaccd
