#include "daemon/tensor/float_types.h"

#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

constexpr std::size_t kBlock = 4096;

// The exponents of infinity and NaN are the largest. No early exit, so that the loop is vectorised.
GACCD_SIMD_CLONES bool AllFinite(const float* values, std::size_t count) {
  constexpr std::int32_t kExponent = 0x7f800000;
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & kExponent);
  }
  return largest < kExponent;
}

}  // namespace

std::size_t FirstNotFinite(std::span<const float> values) {
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    if (AllFinite(block.data(), block.size())) continue;
    const auto found = std::find_if_not(block.begin(), block.end(),
                                        [](float value) { return std::isfinite(value); });
    return begin + static_cast<std::size_t>(found - block.begin());
  }
  return values.size();
}

}  // namespace gaccd
