#include "daemon/data/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>
#include <vector>

#include "tests/sanitized.h"

namespace gaccd {
namespace {

std::vector<std::int64_t> Epoch(const SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(order.size()));
  order.Fill(epoch * order.size(), indices);
  return indices;
}

bool IsPermutation(std::vector<std::int64_t> indices) {
  std::sort(indices.begin(), indices.end());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

TEST(SampleOrderTest, IsAPermutationForEverySizeTo5000) {
  for (std::int64_t size = 1; size <= (tests::kSanitized ? 500 : 5000); ++size) {
    const SampleOrder order(static_cast<std::uint64_t>(size) * 7, size, true);
    ASSERT_TRUE(IsPermutation(Epoch(order, size % 5))) << "size " << size;
  }
}

TEST(SampleOrderTest, IsAPermutationForLargeSizes) {
  for (const std::int64_t size : {60'000, 65'536, 65'537, 1'281'167}) {
    const SampleOrder order(3, size, true);
    EXPECT_TRUE(IsPermutation(Epoch(order, 1))) << "size " << size;
  }
}

TEST(SampleOrderTest, HugeSizesStayInRangeAndDoNotRepeat) {
  for (const std::int64_t size : {(std::int64_t{1} << 40) + 12345, std::int64_t{1} << 62,
                                  std::numeric_limits<std::int64_t>::max()}) {
    const SampleOrder order(11, size, true);
    std::unordered_set<std::int64_t> seen;
    for (std::int64_t i = 0; i < 20'000; ++i) {
      const std::int64_t index = order.IndexAt(0, size - 1 - i);
      ASSERT_GE(index, 0);
      ASSERT_LT(index, size);
      ASSERT_TRUE(seen.insert(index).second) << "size " << size << " position " << i;
    }
  }
}

TEST(SampleOrderTest, OrderIsSequentialWithoutShuffle) {
  const SampleOrder order(1, 7, false);
  std::vector<std::int64_t> indices(10);
  order.Fill(5, indices);
  EXPECT_THAT(indices, testing::ElementsAre(5, 6, 0, 1, 2, 3, 4, 5, 6, 0));
  EXPECT_EQ(order.IndexAt(3, 4), 4);
}

TEST(SampleOrderTest, FillCrossesEpochsAndAgreesWithIndexAt) {
  const SampleOrder order(5, 37, true);
  std::vector<std::int64_t> indices(100);
  order.Fill(30, indices);
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(indices[static_cast<std::size_t>(i)], order.IndexAt((30 + i) / 37, (30 + i) % 37));
  }
}

TEST(SampleOrderTest, EpochsAndSeedsDiffer) {
  const std::int64_t size = 1000;
  const SampleOrder order(1, size, true);
  const auto base = Epoch(order, 0);
  for (const auto& other : {Epoch(order, 1), Epoch(order, 2), Epoch(SampleOrder(2, size, true), 0),
                            Epoch(SampleOrder(1ULL << 63, size, true), 0)}) {
    std::int64_t same = 0;  // one fixed point on average
    for (std::size_t i = 0; i < base.size(); ++i) same += base[i] == other[i];
    EXPECT_LT(same, 10);
  }
  EXPECT_EQ(base, Epoch(SampleOrder(1, size, true), 0));
}

// Chi-square of `counts` against equal frequencies.
double ChiSquare(const std::vector<std::int64_t>& counts) {
  const double total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0L));
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const std::int64_t count : counts) {
    sum += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected);
  }
  return sum / expected;
}

// The bounds are mean + 5 standard deviations of a chi-square variable: f + 5 sqrt(2 f).
double Bound(double freedom) { return freedom + 5 * std::sqrt(2 * freedom); }

TEST(SampleOrderTest, AllPermutationsOfFourComeEquallyOften) {
  std::map<std::vector<std::int64_t>, std::int64_t> counts;
  for (std::int64_t epoch = 0; epoch < 24'000; ++epoch) {
    ++counts[Epoch(SampleOrder(9, 4, true), epoch)];
  }
  ASSERT_EQ(counts.size(), 24U);
  std::vector<std::int64_t> flat;
  for (const auto& [permutation, count] : counts) flat.push_back(count);
  EXPECT_LT(ChiSquare(flat), Bound(23));
}

TEST(SampleOrderTest, HalfOfThePermutationsAreOdd) {
  for (const std::int64_t size : {8, 16, 32, 64}) {
    std::int64_t odd = 0;
    for (std::int64_t epoch = 0; epoch < 2000; ++epoch) {
      const auto indices = Epoch(SampleOrder(6, size, true), epoch);
      std::int64_t inversions = 0;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) inversions += indices[j] > indices[i];
      }
      odd += inversions % 2;
    }
    EXPECT_NEAR(static_cast<double>(odd), 1000, 5 * std::sqrt(500.0)) << "size " << size;
  }
}

TEST(SampleOrderTest, EverySampleIsUniformOverPositions) {
  for (const std::int64_t size : {10, 100, 300}) {
    const auto n = static_cast<std::size_t>(size);
    std::vector<std::int64_t> counts(n * n);
    std::vector<std::int64_t> steps(n);  // from one sample to the one after it
    const SampleOrder order(4, size, true);
    for (std::int64_t epoch = 0; epoch < 20 * size; ++epoch) {
      const auto indices = Epoch(order, epoch);
      for (std::size_t i = 0; i < n; ++i) {
        ++counts[i * n + static_cast<std::size_t>(indices[i])];
        const auto step = (indices[(i + 1) % n] - indices[i] + size) % size;
        ++steps[static_cast<std::size_t>(step)];
      }
    }
    EXPECT_LT(ChiSquare(counts), Bound(static_cast<double>(n * n - 1))) << "size " << size;
    EXPECT_EQ(steps[0], 0);
    steps.erase(steps.begin());
    EXPECT_LT(ChiSquare(steps), Bound(static_cast<double>(n - 2))) << "size " << size;
  }
}

// Computed by an independent program (Python integers): a change of these numbers changes the
// samples of every update of every run, so a restarted run would not continue where it stopped.
TEST(SampleOrderTest, GoldenValues) {
  const auto first = [](std::uint64_t seed, std::int64_t size, std::int64_t epoch) {
    std::vector<std::int64_t> indices;
    const SampleOrder order(seed, size, true);
    for (std::int64_t i = 0; i < 5; ++i) indices.push_back(order.IndexAt(epoch, i));
    return indices;
  };
  EXPECT_THAT(first(1, 10, 0), testing::ElementsAre(8, 6, 2, 4, 5));
  EXPECT_THAT(first(1, 60'000, 0), testing::ElementsAre(18461, 32159, 7187, 4715, 12506));
  EXPECT_THAT(first(1, 256, 0), testing::ElementsAre(26, 176, 155, 49, 235));
  EXPECT_THAT(first(1, 65'536, 2), testing::ElementsAre(27295, 56373, 13586, 60320, 64222));
  EXPECT_THAT(first(42, 60'000, 7), testing::ElementsAre(30459, 15754, 37551, 18763, 42026));
  EXPECT_THAT(first(0xffff'ffff'ffff'ffff, 1'000'000'007, 3),
              testing::ElementsAre(915352315, 36624477, 166958438, 288032215, 104614931));
}

}  // namespace
}  // namespace gaccd
