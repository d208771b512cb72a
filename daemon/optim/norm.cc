#include "daemon/optim/norm.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "collectives/base/simd.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlock = FlatLayout::kBlock;

// Lane l sums the values l, l + 16, l + 32, ...; then the lanes are added in order.
GACCD_SIMD_CLONES
double SumBlock(const float* values, std::size_t n) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const double value = values[i + l];
      lanes[l] += value * value;
    }
  }
  for (std::size_t l = 0; i < n; ++i, ++l) {
    const double value = values[i];
    lanes[l] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Calls use(sum of squares) for every block, in order.
template <typename Use>
void ForBlocks(std::span<const float> gradient, const Use& use) {
  for (std::size_t begin = 0; begin < gradient.size(); begin += kBlock) {
    const auto block = gradient.subspan(begin, std::min(kBlock, gradient.size() - begin));
    use(SumBlock(block.data(), block.size()));
  }
}

}  // namespace

double SumOfSquares(std::span<const float> gradient) {
  double sum = 0;
  ForBlocks(gradient, [&](double of_block) { sum += of_block; });
  return sum;
}

void BlockSquares(std::span<const float> gradient, std::span<double> sums) {
  auto next = sums.begin();
  ForBlocks(gradient, [&](double of_block) { *next++ = of_block; });
}

double SumInOrder(std::span<const double> sums) {
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace gaccd
