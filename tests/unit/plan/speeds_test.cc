// Loads by speed: against all splits of small worlds, and against the plan where speeds are equal.
#include "daemon/plan/speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "daemon/plan/plan.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Cost {
  double time = 0;
  std::int64_t micro_steps = 0;
  double busy = 0;
};

Cost ComputeCost(const std::vector<double>& speeds, const std::vector<std::int64_t>& loads,
                 std::int64_t micro_batch) {
  Cost cost;
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    const double time = static_cast<double>(loads[rank]) / speeds[rank];
    cost.time = std::max(cost.time, time);
    cost.busy += time;
    cost.micro_steps = std::max(cost.micro_steps, (loads[rank] - 1) / micro_batch + 1);
  }
  return cost;
}

bool IsBetter(const Cost& a, const Cost& b) {
  if (a.time != b.time) return a.time < b.time;
  if (a.micro_steps != b.micro_steps) return a.micro_steps < b.micro_steps;
  return a.busy > b.busy + 1e-9;
}

// The best of all splits, one by one.
Cost BruteForce(const std::vector<double>& speeds, std::int64_t samples, std::int64_t micro_batch) {
  std::vector<std::int64_t> loads(speeds.size(), 0);
  loads.back() = samples;
  Cost best = ComputeCost(speeds, loads, micro_batch);
  const std::function<void(std::size_t, std::int64_t)> visit = [&](std::size_t rank,
                                                                   std::int64_t left) {
    if (rank + 1 == loads.size()) {
      loads[rank] = left;
      const Cost cost = ComputeCost(speeds, loads, micro_batch);
      if (IsBetter(cost, best)) best = cost;
      return;
    }
    for (loads[rank] = 0; loads[rank] <= left; ++loads[rank]) visit(rank + 1, left - loads[rank]);
    loads[rank] = 0;
  };
  visit(0, samples);
  return best;
}

void ExpectOptimal(const std::vector<double>& speeds, std::int64_t samples,
                   std::int64_t micro_batch) {
  SCOPED_TRACE(SpeedsText(speeds) + ", " + std::to_string(samples) + " samples, micro-batch " +
               std::to_string(micro_batch));
  const SpeedSplit split = SplitBySpeed(speeds, samples, micro_batch);
  ASSERT_EQ(split.loads.size(), speeds.size());
  ASSERT_EQ(std::reduce(split.loads.begin(), split.loads.end()), samples);
  for (const std::int64_t load : split.loads) {
    ASSERT_GE(load, 0);
    ASSERT_LE(load, split.micro_steps * micro_batch);
  }
  const Cost found = ComputeCost(speeds, split.loads, micro_batch);
  const Cost best = BruteForce(speeds, samples, micro_batch);
  ASSERT_EQ(found.time, best.time) << ::testing::PrintToString(split.loads);
  ASSERT_EQ(split.micro_steps, best.micro_steps) << ::testing::PrintToString(split.loads);
  ASSERT_NEAR(found.busy, best.busy, 1e-9) << ::testing::PrintToString(split.loads);
}

TEST(SpeedsTest, SplitsEverySmallWorldOptimally) {
  const double speeds[] = {0.25, 0.6, 1, 1.7};
  for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
    std::vector<std::size_t> choice(ranks, 0);
    for (bool more = true; more;) {
      std::vector<double> of_rank;
      for (const std::size_t one : choice) of_rank.push_back(speeds[one]);
      for (std::int64_t samples = 1; samples <= 12; ++samples) {
        for (const std::int64_t micro : {1, 2, 3, 5}) ExpectOptimal(of_rank, samples, micro);
      }
      if (HasFatalFailure()) return;
      more = false;
      for (std::size_t rank = 0; rank < ranks && !more; ++rank) {
        choice[rank] = (choice[rank] + 1) % std::size(speeds);
        more = choice[rank] != 0;
      }
    }
  }
}

TEST(SpeedsTest, SplitsRandomWorldsOptimally) {
  std::mt19937_64 random(3072);
  std::uniform_real_distribution<double> exponent(-3, 3);
  std::uniform_int_distribution<std::int64_t> ranks(2, 6);
  std::uniform_int_distribution<std::int64_t> micro(1, 9);
  for (int i = 0; i < 3000 && !HasFatalFailure(); ++i) {
    std::vector<double> speeds(static_cast<std::size_t>(ranks(random)));
    // Of several ranks with one speed, and of speeds like measured ones.
    for (double& speed : speeds) {
      speed = i % 2 == 0 ? std::exp2(std::round(exponent(random))) : std::exp2(exponent(random));
    }
    const std::int64_t most = speeds.size() > 4 ? 14 : 40;
    ExpectOptimal(speeds, std::uniform_int_distribution<std::int64_t>(1, most)(random),
                  micro(random));
  }
}

TEST(SpeedsTest, EqualSpeedsGivePlanWithoutSpeeds) {
  for (const double speed : {0.1, 1.0, 0.6, 3.7}) {
    for (std::int64_t world = 1; world <= 12; ++world) {
      for (std::int64_t target = 1; target <= 60; ++target) {
        const PlanRequest request{
            .nodes = world, .gpus_per_node = 1, .micro_batch = 4, .target_batch = target};
        const Result<Plan> plan = Plan::Make(request);
        ASSERT_TRUE(plan.ok());
        const std::vector<double> speeds(static_cast<std::size_t>(world), speed);
        const SpeedSplit split = SplitBySpeed(speeds, target, 4);
        ASSERT_EQ(split.micro_steps, plan->accum_steps());
        for (std::int64_t rank = 0; rank < world; ++rank) {
          ASSERT_EQ(split.loads[static_cast<std::size_t>(rank)], plan->Load(rank))
              << target << " over " << world << ", rank " << rank << ", speed " << speed;
        }
        PlanRequest alike = request;
        alike.speeds = speeds;
        const Result<Plan> same = Plan::Make(alike);
        ASSERT_TRUE(same.ok());
        ASSERT_FALSE(same->uneven());
        ASSERT_EQ(same->request(), request);
      }
    }
  }
}

TEST(SpeedsTest, SlowAndFastRanksHaveEqualMicroBatches) {
  const Result<Plan> plan = Plan::Make({.nodes = 4,
                                        .gpus_per_node = 1,
                                        .micro_batch = 8,
                                        .target_batch = 100,
                                        .speeds = {1, 0.5, 0.25, 0.01}});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->accum_steps(), 8);
  const std::vector<std::int64_t> loads = {57, 29, 14, 0};
  const std::vector<std::int64_t> filled = {8, 4, 2, 0};
  const std::vector<std::set<std::int64_t>> sizes = {{8, 7}, {8, 7}, {7}, {}};
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    const auto of = static_cast<std::int64_t>(rank);
    EXPECT_EQ(plan->Load(of), loads[rank]);
    EXPECT_EQ(plan->FilledSteps(of), filled[rank]);
    EXPECT_EQ(plan->MicroBatchSizes(of), sizes[rank]);
    std::int64_t sum = 0;
    for (std::int64_t step = 0; step < plan->accum_steps(); ++step) {
      EXPECT_EQ(plan->MicroBatch(of, step) > 0, step < filled[rank]) << step;
      sum += plan->MicroBatch(of, step);
    }
    EXPECT_EQ(sum, loads[rank]);
  }
}

// 20 nodes of speed 1 and 10 of 0.6, 8 ranks each: 3072 samples.
TEST(SpeedsTest, PublishedCase) {
  PlanRequest request{.nodes = 30, .gpus_per_node = 8, .micro_batch = 10, .target_batch = 3072};
  request.speeds.assign(160, 1.0);
  request.speeds.resize(240, 0.6);
  const Result<Plan> plan = Plan::Make(request);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->slowest_time(), 15);
  EXPECT_EQ(plan->accum_steps(), 2);
  EXPECT_DOUBLE_EQ(plan->equal_loads_time(), 13 / 0.6);
  std::int64_t total = 0;
  for (std::int64_t rank = 0; rank < 240; ++rank) {
    ASSERT_EQ(plan->Offset(rank), total);
    std::int64_t sum = 0;
    for (std::int64_t step = 0; step < plan->accum_steps(); ++step) {
      ASSERT_LE(plan->MicroBatch(rank, step), 10);
      sum += plan->MicroBatch(rank, step);
    }
    ASSERT_EQ(sum, plan->Load(rank));
    if (rank >= 160) {
      EXPECT_EQ(plan->Load(rank), 9);
      EXPECT_EQ(plan->MicroBatch(rank, 0), 9);  // not 5 + 4
    }
    total += sum;
  }
  EXPECT_EQ(total, 3072);
  EXPECT_EQ(plan->Offset(240), 3072);
}

TEST(SpeedsTest, SplitsSmallerUpdateBySpeed) {
  const Result<Plan> plan = Plan::Make({.nodes = 3,
                                        .gpus_per_node = 1,
                                        .micro_batch = 4,
                                        .target_batch = 20,
                                        .speeds = {1, 0.5, 0.5}});
  ASSERT_TRUE(plan.ok());
  const Result<Plan> tail = plan->ForSamples(8);
  ASSERT_TRUE(tail.ok());
  EXPECT_EQ(plan->Load(0), 10);
  EXPECT_EQ(plan->accum_steps(), 3);
  EXPECT_EQ(tail->Load(0), 4);
  EXPECT_EQ(tail->Load(1), 2);
  EXPECT_EQ(tail->Load(2), 2);
}

// The rank that is far slower than the others gets none.
TEST(SpeedsTest, RankMayHaveNoSamples) {
  EXPECT_THAT(SplitBySpeed(std::vector{1.0, 0.01, 1.0}, 8, 4).loads, ElementsAre(4, 0, 4));
}

TEST(SpeedsTest, LargeCountsAreExact) {
  const std::vector speeds{1.0, 0.3, 0.7};
  const std::int64_t samples = kMaxSamplesBySpeed;
  const SpeedSplit split = SplitBySpeed(speeds, samples, samples);
  EXPECT_EQ(std::reduce(split.loads.begin(), split.loads.end()), samples);
  EXPECT_EQ(split.micro_steps, 1);
}

TEST(SpeedsTest, RefusesWrongSpeeds) {
  PlanRequest request{.nodes = 2, .gpus_per_node = 1, .target_batch = 8};
  const auto error = [&](std::vector<double> speeds) {
    request.speeds = std::move(speeds);
    return Plan::Make(request).status();
  };
  EXPECT_THAT(error({1, 0}), HasMessage(HasSubstr("rank 1: expected a number from 1e-06 to 1e+06,"
                                                  " found 0")));
  EXPECT_THAT(error({-1, 1}), HasKind(ErrorKind::kConfig));
  EXPECT_THAT(error({std::nan(""), 1}), HasKind(ErrorKind::kConfig));
  EXPECT_THAT(error({1, 1, 1}), HasMessage(HasSubstr("each of 2 ranks, found 3")));
  request.target_batch = kMaxSamplesBySpeed + 1;
  EXPECT_THAT(error({1, 2}), HasMessage(HasSubstr("at most 9007199254740992")));
}

TEST(SpeedsTest, TextRoundTrips) {
  const std::vector<double> speeds{1, 1, 0.6, 1.0 / 3, 1};
  const std::string text = SpeedsText(speeds);
  EXPECT_EQ(text, "2x1,1x0.6,1x0.3333333333333333,1x1");
  EXPECT_EQ(*ParseSpeeds(text, 5), speeds);
  for (const char* wrong : {"", "2", "2x", "x1", "0x1", "-1x1", "6x1", "2x1,", "2x0", "2x1 ",
                            "9999999999999999999x1", "2xnan", "5x1,1x1"}) {
    EXPECT_FALSE(ParseSpeeds(wrong, 5).ok()) << wrong;
  }
}

}  // namespace
}  // namespace gaccd
