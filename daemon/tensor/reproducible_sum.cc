#include "daemon/tensor/reproducible_sum.h"

#include <array>
#include <cmath>
#include <limits>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

constexpr std::array<double, kFloatBins> kFloatQuanta = {0x1p-17, 0x1p-54};
constexpr std::array<double, kDoubleBins> kDoubleQuanta = {0x1p36, 0x1p-1, 0x1p-38, 0x1p-75};
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// After kMaxAddends addends a bin has at most 53 bits.
constexpr double kMaxQuanta = 0x1p37;
static_assert(kMaxQuanta * static_cast<double>(kMaxAddends) == 0x1p53);
static_assert(kMaxQuanta * kFloatQuanta[0] == kFloatLimit);

// The nearest multiple of `quantum`. Adding 1.5 * 2^52 quanta leaves no bits below the quantum.
inline double Round(double value, double quantum) {
  const double shift = 0x1.8p52 * quantum;
  return (value + shift) - shift;
}

GACCD_SIMD_CLONES
void AddFloats(const float* __restrict values, double* __restrict high, double* __restrict low,
               std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const double value = values[i];
    const double first = Round(value, kFloatQuanta[0]);
    high[i] += std::fabs(value) < kMaxQuanta * kFloatQuanta[0] ? first : kNaN;
    low[i] += Round(value - first, kFloatQuanta[1]);
  }
}

GACCD_SIMD_CLONES
void MoveFloats(double* __restrict high, double* __restrict low, float* __restrict sums,
                std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    sums[i] = static_cast<float>(high[i] + low[i]);
    high[i] = 0;
    low[i] = 0;
  }
}

}  // namespace

void AddToBins(std::span<const float> values, std::span<double> high, std::span<double> low) {
  AddFloats(values.data(), high.data(), low.data(), values.size());
}

void MoveBins(std::span<double> bins, std::span<float> sums) {
  MoveFloats(bins.data(), bins.data() + sums.size(), sums.data(), sums.size());
}

void AddToBins(std::span<const double> values, std::span<double> bins) {
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) {
    double rest = values[i];
    if (!(std::fabs(rest) < kMaxQuanta * kDoubleQuanta[0])) rest = kNaN;
    for (std::size_t bin = 0; bin < kDoubleBins; ++bin) {
      const double part = Round(rest, kDoubleQuanta[bin]);
      bins[bin * n + i] += part;
      rest -= part;
    }
  }
}

void ReadBins(std::span<const double> bins, std::span<double> sums) {
  const std::size_t n = sums.size();
  for (std::size_t i = 0; i < n; ++i) {
    sums[i] = 0;
    for (std::size_t bin = kDoubleBins; bin-- > 0;) sums[i] += bins[bin * n + i];
  }
}

}  // namespace gaccd
