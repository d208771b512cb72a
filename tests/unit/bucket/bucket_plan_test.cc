#include "collectives/bucket/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

std::vector<std::pair<std::size_t, std::size_t>> Ranges(const BucketPlan& plan) {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const Bucket& bucket : plan.buckets()) ranges.emplace_back(bucket.offset, bucket.elements);
  return ranges;
}

BucketPlan MakePlan(const std::vector<GradientSlot>& gradients, std::size_t elements,
                    std::size_t bucket) {
  return ValueOrThrow(BucketPlan::Make(gradients, elements, bucket));
}

// Three layers with weight and bias in forward order; backward finishes bias before weight.
const std::vector<GradientSlot> kLayers = {{0, 100, 5},  {100, 10, 4}, {110, 50, 3},
                                           {160, 10, 2}, {170, 20, 1}, {190, 2, 0}};

TEST(BucketPlan, OneBucketByDefault) {
  const auto plan = ValueOrThrow(BucketPlan::Make(kLayers, 192));
  EXPECT_THAT(Ranges(plan), ElementsAre(std::pair(0, 192)));
  EXPECT_EQ(plan.buckets()[0].gradients, 6);
  EXPECT_THAT(plan.bucket_of(), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(BucketPlan, FillsFromTheTopLayerDown) {
  const BucketPlan plan = MakePlan(kLayers, 192, 80);
  EXPECT_THAT(Ranges(plan), ElementsAre(std::pair(160, 32), std::pair(100, 60), std::pair(0, 100)));
  EXPECT_THAT(plan.bucket_of(), ElementsAre(2, 1, 1, 0, 0, 0));
}

TEST(BucketPlan, DoesNotSplitGradients) {
  const BucketPlan plan = MakePlan(kLayers, 192, 1);
  ASSERT_EQ(plan.buckets().size(), 6U);
  EXPECT_EQ(plan.buckets()[5].elements, 100U);
  EXPECT_EQ(plan.buckets()[0].offset, 190U);
}

TEST(BucketPlan, WeightBeforeBiasIsOneRange) {
  // The weight of the upper layer is ready before its bias, so that the run jumps back and forth.
  const BucketPlan plan = MakePlan({{0, 10, 2}, {10, 1, 3}, {11, 10, 0}, {21, 1, 1}}, 22, 11);
  EXPECT_THAT(Ranges(plan), ElementsAre(std::pair(11, 11), std::pair(0, 11)));
}

TEST(BucketPlan, SmallGradientsJoinNeighbours) {
  // Ready in the order of the letters; c is alone between a and b: one message for a and c.
  const BucketPlan plan = MakePlan({{0, 5, 0}, {5, 2, 2}, {7, 9, 1}}, 16, 10);
  EXPECT_THAT(Ranges(plan), ElementsAre(std::pair(7, 9), std::pair(0, 7)));
}

TEST(BucketPlan, OrdersBucketsByLastReadyGradient) {
  const BucketPlan plan = MakePlan({{0, 4, 9}, {4, 4, 0}, {8, 8, 5}}, 16, 8);
  EXPECT_THAT(Ranges(plan), ElementsAre(std::pair(8, 8), std::pair(0, 8)));
}

TEST(BucketPlan, PaddingBetweenGradientsIsPartOfTheBucket) {
  const BucketPlan plan = MakePlan({{0, 10, 1}, {16, 10, 0}}, 32, 32);
  EXPECT_THAT(Ranges(plan), ElementsAre(std::pair(0, 26)));
}

TEST(BucketPlan, PutsEveryElementInOneBucket) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<GradientSlot> gradients;
    std::size_t end = 0;
    const int count = 1 + static_cast<int>(random() % 20);
    std::vector<int> ready(static_cast<std::size_t>(count));
    std::iota(ready.begin(), ready.end(), 0);
    std::ranges::shuffle(ready, random);
    for (const int r : ready) {
      if (random() % 4 == 0) end += random() % 16;
      gradients.push_back({end, 1 + random() % 100, r});
      end += gradients.back().elements;
    }
    std::ranges::shuffle(gradients, random);
    const std::size_t limit = 1 + random() % 300;
    const BucketPlan plan = MakePlan(gradients, end + random() % 5, limit);

    std::vector<int> times(plan.buffer_elements(), 0);
    for (const Bucket& bucket : plan.buckets()) {
      for (std::size_t i = 0; i < bucket.elements; ++i) ++times[bucket.offset + i];
      EXPECT_TRUE(bucket.elements <= limit || bucket.gradients == 1);
    }
    EXPECT_LE(*std::ranges::max_element(times), 1);
    std::vector<int> members(plan.buckets().size(), 0);
    std::vector<int> last(plan.buckets().size(), -1);
    for (std::size_t g = 0; g < gradients.size(); ++g) {
      const std::size_t b = plan.bucket_of()[g];
      const Bucket& bucket = plan.buckets()[b];
      EXPECT_GE(gradients[g].offset, bucket.offset);
      EXPECT_LE(gradients[g].offset + gradients[g].elements, bucket.offset + bucket.elements);
      ++members[b];
      last[b] = std::max(last[b], gradients[g].ready);
    }
    for (std::size_t b = 0; b < members.size(); ++b) {
      EXPECT_EQ(members[b], plan.buckets()[b].gradients);
    }
    EXPECT_TRUE(std::ranges::is_sorted(last));
  }
}

TEST(BucketPlan, RefusesInvalidValues) {
  const auto message = [](std::vector<GradientSlot> gradients, std::size_t bucket) {
    const auto plan = BucketPlan::Make(gradients, 20, bucket);
    return plan.ok() ? "accepted" : plan.status().message();
  };
  EXPECT_THAT(message({}, 5), HasSubstr("found none"));
  EXPECT_THAT(message({{0, 5, 0}}, 0), HasSubstr("found 0"));
  EXPECT_THAT(message({{0, 5, 0}, {5, 0, 1}}, 5), HasSubstr("gradient 1 has no elements"));
  EXPECT_THAT(message({{0, 5, 0}, {4, 5, 1}}, 5),
              HasSubstr("gradient 1 at 4 overlaps one that ends at 5"));
  EXPECT_THAT(message({{16, 5, 0}}, 5), HasSubstr("outside of the buffer of 20"));
  EXPECT_THAT(message({{kOneBucket, 5, 0}}, 5), HasSubstr("outside of the buffer of 20"));
}

}  // namespace
}  // namespace gaccd
