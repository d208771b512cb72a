#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "collectives/base/hash.h"
#include "daemon/optim/measure.h"

namespace gaccd {
namespace {

std::vector<float> Values(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = 1.0F / static_cast<float>(i + 3);
  return values;
}

TEST(DigestTest, EveryBitCounts) {
  std::vector<float> values = Values(67);
  std::set<std::uint64_t> seen{ComputeDigest(values)};
  std::size_t digests = 1;
  for (float& value : values) {
    const float kept = value;
    for (int bit = 0; bit < 32; ++bit) {
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(kept) ^ (1U << bit));
      seen.insert(ComputeDigest(values));
      ++digests;
    }
    value = kept;
  }
  EXPECT_EQ(seen.size(), digests);
}

TEST(DigestTest, DependsOnPositions) {
  std::vector<float> values = Values(64);
  const std::uint64_t digest = ComputeDigest(values);
  std::swap(values[3], values[4]);
  EXPECT_NE(ComputeDigest(values), digest);
  std::swap(values[3], values[4]);
  EXPECT_EQ(ComputeDigest(values), digest);
  std::swap_ranges(values.begin(), values.begin() + 2, values.begin() + 8);
  EXPECT_NE(ComputeDigest(values), digest);
  const std::vector<float> zeros(64);
  EXPECT_NE(ComputeDigest(std::span(zeros).first(62)), ComputeDigest(zeros));
}

// 0.0 and -0.0 are equal, but replicas that have one and the other have drifted apart.
TEST(DigestTest, BitsNotValues) {
  EXPECT_NE(ComputeDigest(std::vector<float>{0.0F, 1.0F}),
            ComputeDigest(std::vector<float>{-0.0F, 1.0F}));
}

TEST(DigestTest, DigestsOfPartsAddUp) {
  const std::vector<float> values = Values(1001);
  const std::span<const float> all(values);
  for (const std::size_t cut : {0U, 2U, 500U, 1000U}) {
    EXPECT_EQ(ComputeDigest(all.first(cut)) +
                  ComputeDigest(all.subspan(cut), static_cast<std::int64_t>(cut)),
              ComputeDigest(all));
  }
}

// By hand for one pair: the same on every machine.
TEST(DigestTest, EqualsDefinitionInHeader) {
  const std::vector<float> values{1.0F, -2.0F};
  std::uint64_t word = 0xC00000003F800000U + 0x9E3779B97F4A7C15U;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9U;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBU;
  EXPECT_EQ(ComputeDigest(values), word ^ (word >> 31));
  EXPECT_EQ(ComputeDigest({}), 0U);
  EXPECT_EQ(Hex(0x00ABCDEF01234567U), "00abcdef01234567");
}

}  // namespace
}  // namespace gaccd
