#include "daemon/optim/digest.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "collectives/base/simd.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

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
