// Sums over a row of floats for the loops of the CPU: in kLanes sums side by side, which the
// compiler keeps in vector registers, and whose rounding errors grow with n / kLanes.
#pragma once

#include <cstdint>

namespace gaccd {

// The sum of value(i) over 0 <= i < n. The order of the additions depends on n alone.
template <typename Value>
inline float SumOf(std::int64_t n, const Value& value) {
  constexpr std::int64_t kLanes = 32;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += value(i + l);
  }
  for (std::int64_t l = 0; i + l < n; ++l) lanes[l] += value(i + l);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

}  // namespace gaccd
