// Sums and maxima over a row of floats on the CPU, in an order that the compiler can vectorise.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace gaccd {

// The sum of value(i) over 0 <= i < n, as parallel partial sums, whose rounding errors grow with n
// / 32. The order of additions depends only on n.
template <typename Value>
inline float SumValues(std::int64_t n, const Value& value) {
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

// The same for long rows: blocks are added in double.
template <typename Value>
inline double SumValuesInBlocks(std::int64_t n, const Value& value) {
  constexpr std::int64_t kBlock = 1024;
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    sum += static_cast<double>(SumValues(
        std::min(kBlock, n - begin), [&value, begin](std::int64_t i) { return value(begin + i); }));
  }
  return sum;
}

// Maps the bits of a float to an integer with the same order, and back: the compiler only
// vectorises maxima of integers.
inline std::int32_t Ordered(std::int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

// The maximum of n >= 1 values. A NaN is ordered above infinity or below -infinity.
inline float FindLargest(const float* values, std::int64_t n) {
  std::int32_t largest = std::numeric_limits<std::int32_t>::min();
  for (std::int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, Ordered(std::bit_cast<std::int32_t>(values[i])));
  }
  return std::bit_cast<float>(Ordered(largest));
}

}  // namespace gaccd
