// The plan against its invariants (daemon/plan/plan.h) and against brute force.
#include "daemon/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr Rounding kAllModes[] = {Rounding::kExact, Rounding::kFloor, Rounding::kCeil,
                                  Rounding::kNearest};

PlanRequest Request(std::int64_t nodes, std::int64_t gpus, std::int64_t micro, std::int64_t target,
                    Rounding rounding = Rounding::kExact) {
  return {.nodes = nodes,
          .gpus_per_node = gpus,
          .micro_batch = micro,
          .target_batch = target,
          .rounding = rounding};
}

Plan MakePlan(const PlanRequest& request) { return ValueOrThrow(Plan::Make(request)); }

std::string Describe(const PlanRequest& request) {
  return std::to_string(request.nodes) + "x" + std::to_string(request.gpus_per_node) + "x" +
         std::to_string(request.micro_batch) + " -> " + std::to_string(request.target_batch) + " " +
         std::string(Name(request.rounding));
}

// Micro-steps by counting up, without any of the formulas of plan.cc.
std::int64_t BruteForceSteps(const PlanRequest& request) {
  const std::int64_t base = request.nodes * request.gpus_per_node * request.micro_batch;
  const std::int64_t target = request.target_batch;
  std::int64_t below = 0;  // the largest k with k * base <= target
  while ((below + 1) * base <= target) ++below;
  const std::int64_t above = below * base == target ? below : below + 1;
  switch (request.rounding) {
    case Rounding::kExact: {
      const std::int64_t world = request.nodes * request.gpus_per_node;
      std::int64_t largest = 0;  // the smallest load with which W ranks hold the target
      while (largest * world < target) ++largest;
      std::int64_t k = 1;
      while (k * request.micro_batch < largest) ++k;
      return k;
    }
    case Rounding::kFloor:
      return std::max<std::int64_t>(1, below);
    case Rounding::kCeil:
      return above;
    case Rounding::kNearest: {
      const bool up = above * base - target <= target - below * base;  // a half goes up
      return std::max<std::int64_t>(1, up ? above : below);
    }
  }
  return 0;
}

// Every invariant of one plan, rank by rank and micro-step by micro-step.
void CheckInvariants(const PlanRequest& request) {
  SCOPED_TRACE(Describe(request));
  const Plan plan = MakePlan(request);
  const std::int64_t world = request.nodes * request.gpus_per_node;
  ASSERT_EQ(plan.world(), world);
  ASSERT_EQ(plan.accum_steps(), BruteForceSteps(request));
  const bool exact = request.rounding == Rounding::kExact;
  ASSERT_EQ(plan.effective_batch(),
            exact ? request.target_batch : plan.accum_steps() * plan.base_batch());

  std::int64_t total = 0;
  std::int64_t hi = 0;
  std::vector<std::int64_t> one_more_of_node(static_cast<std::size_t>(request.nodes), 0);
  for (std::int64_t rank = 0; rank < world; ++rank) {
    const std::int64_t load = plan.Load(rank);
    ASSERT_EQ(plan.Offset(rank), total) << "rank " << rank;
    ASSERT_GE(load, plan.effective_batch() / world);
    ASSERT_LE(load, plan.effective_batch() / world + 1);
    std::int64_t sum = 0;
    for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
      const std::int64_t micro = plan.MicroBatch(rank, step);
      ASSERT_GE(micro, 0);
      ASSERT_LE(micro, request.micro_batch);
      ASSERT_LE(micro, plan.MicroBatch(rank, 0));
      ASSERT_GE(micro, plan.MicroBatch(rank, 0) - 1);
      sum += micro;
    }
    ASSERT_EQ(sum, load) << "rank " << rank;
    total += load;
    if (load == plan.ranks_hi_samples()) ++hi;
    if (load > plan.effective_batch() / world) {
      ++one_more_of_node[static_cast<std::size_t>(rank / request.gpus_per_node)];
    }
  }
  ASSERT_EQ(total, plan.effective_batch());
  ASSERT_EQ(plan.Offset(world), total);
  ASSERT_EQ(hi, plan.ranks_hi());
  ASSERT_EQ(plan.ranks_hi() + plan.ranks_lo(), world);
  ASSERT_EQ(plan.ranks_hi() * plan.ranks_hi_samples() + plan.ranks_lo() * plan.ranks_lo_samples(),
            total);
  const auto [least, most] = std::minmax_element(one_more_of_node.begin(), one_more_of_node.end());
  ASSERT_LE(*most - *least, 1) << "ranks with one sample more are not spread over the nodes";
}

TEST(PlanTest, PublishedCase) {
  const Plan exact = MakePlan(Request(30, 8, 10, 3072));
  EXPECT_EQ(exact.world(), 240);
  EXPECT_EQ(exact.base_batch(), 2400);
  EXPECT_DOUBLE_EQ(exact.ratio(), 1.28);
  EXPECT_EQ(exact.accum_steps(), 2);
  EXPECT_EQ(exact.effective_batch(), 3072);
  EXPECT_TRUE(exact.exact());
  EXPECT_EQ(exact.ranks_hi(), 192);
  EXPECT_EQ(exact.ranks_hi_samples(), 13);
  EXPECT_EQ(exact.ranks_lo(), 48);
  EXPECT_EQ(exact.ranks_lo_samples(), 12);
  EXPECT_DOUBLE_EQ(exact.balance_ratio(), 12.8 / 13);
  for (std::int64_t rank = 0; rank < 240; ++rank) {
    const std::int64_t load = exact.Load(rank);
    EXPECT_EQ(exact.MicroBatch(rank, 0), load == 13 ? 7 : 6);
    EXPECT_EQ(exact.MicroBatch(rank, 1), 6);
  }

  const Plan floor = MakePlan(Request(30, 8, 10, 3072, Rounding::kFloor));
  EXPECT_EQ(floor.effective_batch(), 2400);
  EXPECT_DOUBLE_EQ(floor.error_ratio(), -0.21875);
  EXPECT_FALSE(floor.exact());
  const Plan ceil = MakePlan(Request(30, 8, 10, 3072, Rounding::kCeil));
  EXPECT_EQ(ceil.effective_batch(), 4800);
  EXPECT_DOUBLE_EQ(ceil.error_ratio(), 0.5625);
  EXPECT_EQ(MakePlan(Request(30, 8, 10, 3072, Rounding::kNearest)).effective_batch(), 2400);
}

TEST(PlanTest, RoundsHalfUp) {
  EXPECT_EQ(MakePlan(Request(1, 2, 5, 15, Rounding::kNearest)).accum_steps(), 2);
  EXPECT_EQ(MakePlan(Request(1, 2, 5, 14, Rounding::kNearest)).accum_steps(), 1);
  EXPECT_EQ(MakePlan(Request(1, 2, 5, 1, Rounding::kNearest)).accum_steps(), 1);
}

TEST(PlanTest, ExactMultipleAddsNoStep) {
  for (const Rounding mode : kAllModes) {
    const Plan plan = MakePlan(Request(3, 4, 5, 180, mode));
    EXPECT_EQ(plan.accum_steps(), 3);
    EXPECT_TRUE(plan.exact());
    EXPECT_EQ(plan.ranks_hi(), 12);
    EXPECT_EQ(plan.ranks_lo(), 0);
    EXPECT_EQ(plan.ranks_lo_samples(), 0);
    EXPECT_EQ(plan.balance_ratio(), 1);
  }
}

TEST(PlanTest, InvariantsOfAllTargetsOnOneCluster) {
  for (std::int64_t target = 1; target <= 5000; target += 3) {
    for (const Rounding mode : kAllModes) CheckInvariants(Request(5, 8, 10, target, mode));
    if (HasFatalFailure()) return;
  }
}

TEST(PlanTest, InvariantsOfThousandsOfRandomCases) {
  std::mt19937_64 random(20240721);
  const auto uniform = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 8000; ++i) {
    const std::int64_t gpus = uniform(1, 16);
    const std::int64_t nodes = uniform(1, 240 / gpus);
    const Rounding mode = kAllModes[uniform(0, 3)];
    const std::int64_t target = i % 4 == 0 ? uniform(1, gpus * nodes) : uniform(1, 5000);
    CheckInvariants(Request(nodes, gpus, uniform(1, 16), target, mode));
    if (HasFatalFailure()) return;
  }
}

TEST(PlanTest, TargetBelowWorldSpreadsSamplesAndLeavesRanksEmpty) {
  const Plan plan = MakePlan(Request(30, 8, 10, 30));
  EXPECT_EQ(plan.accum_steps(), 1);
  for (std::int64_t node = 0; node < 30; ++node) {
    std::int64_t of_node = 0;
    for (std::int64_t gpu = 0; gpu < 8; ++gpu) of_node += plan.Load(node * 8 + gpu);
    EXPECT_EQ(of_node, 1) << "node " << node;
  }
}

TEST(PlanTest, HugeCountsStayExact) {
  const Plan most = MakePlan(Request(1'000'000, 1000, 1, kMax));
  EXPECT_EQ(most.effective_batch(), kMax);
  EXPECT_EQ(most.Offset(most.world()), kMax);
  EXPECT_EQ(most.ranks_hi() + most.ranks_lo(), most.world());
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t rank =
        std::uniform_int_distribution<std::int64_t>(0, most.world() - 1)(random);
    const std::int64_t load = most.Load(rank);
    ASSERT_TRUE(load == kMax / most.world() || load == kMax / most.world() + 1);
    ASSERT_EQ(most.Offset(rank) + load, most.Offset(rank + 1));
    ASSERT_LE(most.MicroBatch(rank, 0), 1);
  }
  // rank * rest takes more than 64 bits here.
  const Plan far = MakePlan(Request(3'000'000'000, 4, 1, 12'000'000'000 * 7 + 11'999'999'999));
  EXPECT_EQ(far.Offset(far.world()), far.effective_batch());
  EXPECT_EQ(far.Load(far.world() - 1), 8);
  EXPECT_EQ(far.Offset(far.world() / 2), far.world() / 2 * 7 + far.world() / 2 - 1);
  const Plan wide = MakePlan(Request(kMax, 1, 1, kMax));
  EXPECT_EQ(wide.accum_steps(), 1);
  EXPECT_EQ(wide.Load(kMax - 1), 1);
  EXPECT_EQ(wide.Offset(kMax), kMax);
  EXPECT_EQ(MakePlan(Request(1, 1, kMax, kMax, Rounding::kNearest)).accum_steps(), 1);
  EXPECT_EQ(MakePlan(Request(1, 1, 1, kMax, Rounding::kNearest)).accum_steps(), kMax);
}

void ExpectError(const PlanRequest& request, ErrorKind kind, std::string_view part) {
  SCOPED_TRACE(Describe(request));
  const Result<Plan> plan = Plan::Make(request);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().kind(), kind);
  EXPECT_THAT(plan, HasMessage(testing::HasSubstr(part)));
}

TEST(PlanTest, OverflowIsAnErrorWithBothFactors) {
  ExpectError(Request(kMax, 2, 1, 1), ErrorKind::kConfig, "9223372036854775807 * GPUs per node 2");
  ExpectError(Request(kMax / 2, 2, 3, 1), ErrorKind::kConfig, "micro-batch 3");
  // 2 * base is one more than fits: exact needs no such product, ceil does.
  const std::int64_t half = kMax / 2 + 1;
  ExpectError(Request(half, 1, 1, kMax, Rounding::kCeil), ErrorKind::kConfig, "micro-steps 2");
  EXPECT_TRUE(Plan::Make(Request(half, 1, 1, kMax)).ok());
}

TEST(PlanTest, RefusesCountsBelowOneByName) {
  ExpectError(Request(0, 8, 10, 3072), ErrorKind::kUsage, "nodes must be at least 1, found 0");
  ExpectError(Request(1, -8, 10, 3072), ErrorKind::kUsage, "GPUs per node");
  ExpectError(Request(1, 8, 0, 3072), ErrorKind::kUsage, "micro-batch");
  ExpectError(Request(1, 8, 10, 0), ErrorKind::kUsage, "target batch");
  PlanRequest request = Request(1, 8, 10, 1);
  request.reference_batch = -1;
  ExpectError(request, ErrorKind::kUsage, "found -1");
}

TEST(PlanTest, LearningRateFactorFollowsRule) {
  PlanRequest request = Request(30, 8, 10, 3072);
  request.reference_batch = 768;
  EXPECT_EQ(MakePlan(request).lr_factor(), 1);
  request.lr_rule = LrRule::kLinear;
  EXPECT_EQ(MakePlan(request).lr_factor(), 4);
  request.lr_rule = LrRule::kSqrt;
  EXPECT_EQ(MakePlan(request).lr_factor(), 2);
  request.reference_batch = 0;
  request.rounding = Rounding::kCeil;
  EXPECT_DOUBLE_EQ(MakePlan(request).lr_factor(), std::sqrt(4800.0 / 3072));
}

TEST(PlanTest, LastCycleIsExactPlanOfFewerSamples) {
  PlanRequest request = Request(4, 2, 32, 1000, Rounding::kNearest);
  request.lr_rule = LrRule::kLinear;
  const auto last = ValueOrThrow(MakePlan(request).ForSamples(250));
  EXPECT_EQ(last.effective_batch(), 250);
  EXPECT_EQ(last.accum_steps(), 1);
  EXPECT_DOUBLE_EQ(last.lr_factor(), 0.25);
  EXPECT_FALSE(last.ForSamples(0).ok());
}

TEST(PlanTest, PlanForAnotherTargetHasSameReferenceBatch) {
  PlanRequest request = Request(4, 2, 32, 1000, Rounding::kExact);
  request.lr_rule = LrRule::kLinear;
  const Plan plan = MakePlan(request);
  const Plan other = ValueOrThrow(plan.ForTarget(2500));
  EXPECT_EQ(other.effective_batch(), 2500);
  EXPECT_EQ(other.reference_batch(), 1000);
  EXPECT_DOUBLE_EQ(other.lr_factor(), plan.LrFactor(2500));
}

// Bits::kAnySplit: the same micro-batches, whatever the ranks are.
TEST(PlanTest, AnySplitHasTheSameMicroBatchesOnAnyRanks) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const auto target = static_cast<std::int64_t>(1 + random() % 400);
    const auto micro = static_cast<std::int64_t>(1 + random() % 20);
    std::vector<std::int64_t> expected;  // sizes
    for (const std::int64_t world : {1, 2, 3, 7, 24, 500}) {
      PlanRequest request = Request(1, world, micro, target);
      request.bits = Bits::kAnySplit;
      SCOPED_TRACE(Describe(request));
      const Plan plan = MakePlan(request);
      std::vector<std::int64_t> sizes;
      std::int64_t samples = 0;
      std::int64_t least = target;
      std::int64_t most = 0;
      for (std::int64_t rank = 0; rank < world; ++rank) {
        ASSERT_EQ(plan.Offset(rank), samples);
        const std::int64_t filled = plan.FilledSteps(rank);
        std::set<std::int64_t> own;
        for (std::int64_t step = 0; step < plan.accum_steps(); ++step) {
          const std::int64_t size = plan.MicroBatch(rank, step);
          ASSERT_EQ(size > 0, step < filled);
          ASSERT_LE(size, micro);
          if (size == 0) continue;
          sizes.push_back(size);
          own.insert(size);
        }
        ASSERT_EQ(plan.MicroBatchSizes(rank), own);
        samples += plan.Load(rank);
        least = std::min(least, filled);
        most = std::max(most, filled);
      }
      ASSERT_EQ(samples, target);
      ASSERT_LE(most - least, 1);
      ASSERT_EQ(most, plan.accum_steps());
      if (expected.empty()) expected = sizes;
      ASSERT_EQ(sizes, expected);
    }
    ASSERT_EQ(std::ssize(expected), (target + micro - 1) / micro);
  }
}

TEST(PlanTest, AnySplitRefusesTooManyMicroBatches) {
  PlanRequest request = Request(30, 8, 1, kMaxExactMicroBatches);
  request.bits = Bits::kAnySplit;
  EXPECT_TRUE(Plan::Make(request).ok());
  ++request.target_batch;
  EXPECT_THAT(Plan::Make(request),
              IsError(ErrorKind::kConfig, "at most 65536 micro-batches", "found 65537"));
}

}  // namespace
}  // namespace gaccd
