#include "daemon/tensor/finite.h"

#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

constexpr std::size_t kBlock = 4096;

// x - x is 0 for every finite x, otherwise NaN. No early exit, so that the loop is vectorised.
GACCD_SIMD_CLONES bool AllFinite(const float* values, std::size_t count) {
  bool finite = true;
  for (std::size_t i = 0; i < count; ++i) finite &= values[i] - values[i] == 0;
  return finite;
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
