// Reproducible sums: the same bits for any order and any grouping of the addends, so also for any
// split among ranks. After Demmel and Nguyen, "Parallel Reproducible Summation" (2015), with fixed
// bins: an addend is split into multiples of fixed powers of two (quanta), which are added to one
// double each, a bin. After at most kMaxAddends addends a bin has at most 53 bits, so it is exact,
// also in an all-reduce of doubles.
//
//   addends   quanta                      absolute value below   rounded to a multiple of
//   float     2^-17, 2^-54                2^20                   2^-54 = 5.6e-17
//   double    2^36, 2^-1, 2^-38, 2^-75    2^73                   2^-75 = 2.6e-23
//
// A larger addend, infinity or NaN makes the sum NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gaccd {

inline constexpr std::int64_t kMaxAddends = std::int64_t{1} << 16;
inline constexpr float kFloatLimit = 0x1p20F;  // a sum with such an addend is NaN

// The number of bins of a sum of floats and of doubles. A buffer of bins holds the first bin of all
// elements, then the second, and so on. It begins as zeros.
inline constexpr std::size_t kFloatBins = 2;
inline constexpr std::size_t kDoubleBins = 4;

// Adds `values` to the sums, whose bins are `high` and `low`. REQUIRES: as many elements in each.
void AddToBins(std::span<const float> values, std::span<double> high, std::span<double> low);
// Sets `sums` to the sums, rounded to float, and the bins to zero. REQUIRES: bins.size() ==
// kFloatBins * sums.size(); likewise below.
void MoveBins(std::span<double> bins, std::span<float> sums);

// The same for doubles.
void AddToBins(std::span<const double> values, std::span<double> bins);
void ReadBins(std::span<const double> bins, std::span<double> sums);

}  // namespace gaccd
