#include "daemon/optim/measure.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "collectives/base/simd.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/random.h"

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

// key: of the first pair.
GACCD_SIMD_CLONES
std::uint64_t SumPairs(const float* values, std::size_t pairs, std::uint64_t key) {
  std::uint64_t sum = 0;
  for (std::size_t j = 0; j < pairs; ++j) {
    std::uint64_t word = 0;
    std::memcpy(&word, values + 2 * j, sizeof word);
    sum += Mix64(word + key + j * kGoldenStep);
  }
  return sum;
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

std::uint64_t ComputeDigest(std::span<const float> values, std::int64_t first) {
  const std::size_t pairs = values.size() / 2;
  const std::uint64_t key = (static_cast<std::uint64_t>(first) / 2 + 1) * kGoldenStep;
  std::uint64_t sum = SumPairs(values.data(), pairs, key);
  if (values.size() % 2 == 1) {
    sum += Mix64(std::bit_cast<std::uint32_t>(values.back()) + key + pairs * kGoldenStep);
  }
  return sum;
}

}  // namespace gaccd
