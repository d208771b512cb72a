#include "daemon/plan/alternatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>

#include "daemon/plan/plan_text.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

Plan MakePlan(std::int64_t nodes, std::int64_t gpus, std::int64_t micro, std::int64_t target,
              Rounding rounding = Rounding::kExact) {
  return ValueOrThrow(Plan::Make({.nodes = nodes,
                                  .gpus_per_node = gpus,
                                  .micro_batch = micro,
                                  .target_batch = target,
                                  .rounding = rounding}));
}

template <typename Field>
std::vector<std::int64_t> Requested(const std::vector<Alternative>& found, Field field) {
  std::vector<std::int64_t> values;
  values.reserve(found.size());
  for (const Alternative& one : found) values.push_back(one.plan.request().*field);
  return values;
}

TEST(AlternativesTest, PublishedCase) {
  const Alternatives found = FindAlternatives(MakePlan(30, 8, 10, 3072));
  EXPECT_FALSE(found.divides);
  EXPECT_EQ(found.requested_cost, 1);
  EXPECT_THAT(Requested(found.nodes, &PlanRequest::nodes), ElementsAre(16, 24, 32));
  EXPECT_THAT(Requested(found.targets, &PlanRequest::target_batch), ElementsAre(2880, 3120));
  EXPECT_THAT(Requested(found.micro_batches, &PlanRequest::micro_batch), ElementsAre(13));
  EXPECT_EQ(found.micro_batches[0].plan.accum_steps(), 1);
  EXPECT_DOUBLE_EQ(found.targets[1].error_ratio, 0.015625);
  ASSERT_EQ(found.modes.size(), 3U);
  EXPECT_DOUBLE_EQ(found.modes[0].cost_ratio, 10.0 / 13);  // floor
  EXPECT_DOUBLE_EQ(found.modes[1].cost_ratio, 10.0 / 13);  // nearest
  EXPECT_DOUBLE_EQ(found.modes[2].cost_ratio, 20.0 / 13);  // ceil
  EXPECT_DOUBLE_EQ(found.nodes[1].cost_ratio, 16.0 / 13);
  EXPECT_EQ(found.nodes[1].plan.ranks_lo(), 0);
}

TEST(AlternativesTest, CostIsRelativeToExactPlan) {
  const Alternatives found = FindAlternatives(MakePlan(30, 8, 10, 3072, Rounding::kCeil));
  EXPECT_DOUBLE_EQ(found.requested_cost, 20.0 / 13);
  ASSERT_EQ(found.modes.size(), 3U);
  EXPECT_TRUE(found.modes[0].plan.exact());
  EXPECT_DOUBLE_EQ(found.modes[0].cost_ratio, 1);
  EXPECT_DOUBLE_EQ(found.nodes[1].cost_ratio, 16.0 / 13);
  EXPECT_TRUE(found.nodes[1].plan.exact());
}

TEST(AlternativesTest, ReturnsSmallestMicroBatchThatSavesAStep) {
  for (std::int64_t target = 241; target < 6000; target += 7) {
    const Plan plan = MakePlan(30, 8, 10, target);
    if (target % 240 == 0) continue;
    const Alternatives found = FindAlternatives(plan);
    if (plan.accum_steps() == 1) {
      EXPECT_THAT(found.micro_batches, IsEmpty());
      continue;
    }
    ASSERT_EQ(found.micro_batches.size(), 1U) << target;
    const Plan& better = found.micro_batches[0].plan;
    const std::int64_t micro = better.request().micro_batch;
    EXPECT_EQ(better.accum_steps(), plan.accum_steps() - 1);
    EXPECT_EQ(MakePlan(30, 8, micro - 1, target).accum_steps(), plan.accum_steps()) << target;
  }
}

// The list of node counts is complete: the same by trying every count with its definition.
TEST(AlternativesTest, NodeCountsEqualBruteForce) {
  for (std::int64_t nodes = 1; nodes <= 60; ++nodes) {
    for (const std::int64_t target : {96, 1000, 3072, 4096, 5040, 997}) {
      const Plan plan = MakePlan(nodes, 8, 10, target);
      if (target % plan.world() == 0) continue;
      std::vector<std::int64_t> dividing;
      for (std::int64_t n = (nodes + 1) / 2; n <= 2 * nodes; ++n) {
        if (target % (8 * n) == 0) dividing.push_back(n);
      }
      const Alternatives found = FindAlternatives(plan);
      const auto listed = Requested(found.nodes, &PlanRequest::nodes);
      EXPECT_EQ(listed.size(), std::min<std::size_t>(3, dividing.size())) << nodes << " " << target;
      for (const std::int64_t n : listed) EXPECT_EQ(target % (8 * n), 0);
    }
  }
}

TEST(AlternativesTest, PipelineNodeCountsEqualBruteForce) {
  for (std::int64_t nodes = 2; nodes <= 40; nodes += 2) {
    for (const std::int64_t target : {60, 96, 1000, 997}) {
      const Plan plan = ValueOrThrow(
          Plan::Make({.nodes = nodes, .gpus_per_node = 6, .target_batch = target, .stages = 4}));
      if (target % plan.pipelines() == 0) continue;
      std::size_t dividing = 0;
      for (std::int64_t n = (nodes + 1) / 2; n <= 2 * nodes; ++n) {
        if (6 * n % 4 == 0 && target % (6 * n / 4) == 0) ++dividing;
      }
      const auto found = Requested(FindAlternatives(plan).nodes, &PlanRequest::nodes);
      EXPECT_EQ(found.size(), std::min<std::size_t>(3, dividing)) << nodes << " " << target;
    }
  }
}

TEST(AlternativesTest, MicroBatchesThatFillEveryStep) {
  const Alternatives found = FindAlternatives(MakePlan(4, 2, 32, 1000));  // 125 a rank
  EXPECT_TRUE(found.divides);
  EXPECT_THAT(found.nodes, IsEmpty());
  EXPECT_THAT(Requested(found.micro_batches, &PlanRequest::micro_batch), ElementsAre(25));
  EXPECT_THAT(FindAlternatives(MakePlan(32, 8, 12, 3072)).micro_batches, IsEmpty());
  EXPECT_THAT(
      Requested(FindAlternatives(MakePlan(1, 1, 32, 100)).micro_batches, &PlanRequest::micro_batch),
      ElementsAre(25, 50));
}

TEST(AlternativesTest, HugeCountsAreFastAndDoNotOverflow) {
  constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
  for (const Rounding rounding :
       {Rounding::kExact, Rounding::kFloor, Rounding::kCeil, Rounding::kNearest}) {
    for (const auto& [nodes, micro] :
         {std::pair{kMaxInt64, std::int64_t{1}}, std::pair{std::int64_t{1}, kMaxInt64},
          std::pair{std::int64_t{3}, std::int64_t{7}}, std::pair{kMaxInt64 / 2, std::int64_t{2}}}) {
      for (const std::int64_t target : {kMaxInt64, std::int64_t{1}, kMaxInt64 - 1}) {
        const Result<Plan> plan = Plan::Make({.nodes = nodes,
                                              .gpus_per_node = 1,
                                              .micro_batch = micro,
                                              .target_batch = target,
                                              .rounding = rounding});
        if (!plan.ok()) continue;
        EXPECT_FALSE(PlanText(*plan, {}).empty());
      }
    }
  }
}

TEST(PlanTextTest, FitsEightyColumns) {
  for (const std::int64_t target : {1, 100, 3072, 3073, 1000000, 9999999}) {
    for (const Rounding rounding : {Rounding::kExact, Rounding::kCeil}) {
      const std::string text = PlanText(MakePlan(30, 8, 10, target, rounding), {});
      std::istringstream lines(text);
      std::string line;
      int count = 0;
      while (std::getline(lines, line)) {
        ++count;
        EXPECT_LE(line.size(), 80U) << line;
      }
      EXPECT_LE(count, 40);
      EXPECT_EQ(text.back(), '\n');
    }
  }
}

TEST(PlanTextTest, MarksDeviationsFromRequest) {
  const Plan plan = MakePlan(30, 8, 10, 3072);
  EXPECT_THAT(PlanText(plan, {}), Not(HasSubstr("(default)")));
  const std::string text =
      PlanText(plan, {.gpus_per_node = Origin::kDefault, .micro_batch = Origin::kJob});
  EXPECT_THAT(text, HasSubstr("8 ranks (default)"));
  EXPECT_THAT(text, HasSubstr("10 (job), the most samples"));
}

TEST(PlanTextTest, ExplainsIndivisibleBatch) {
  EXPECT_THAT(PlanText(MakePlan(30, 8, 10, 3073), {}),
              HasSubstr("3073 is not a multiple of 8 ranks per node"));
  EXPECT_THAT(PlanText(MakePlan(30, 8, 10, std::int64_t{8} * 997), {}),
              HasSubstr("No node count from 15 to 60 does"));
  EXPECT_THAT(PlanText(MakePlan(30, 8, 10, 100), {}), HasSubstr("140 ranks have no work"));
}

TEST(PlanTextTest, LoadsHaveAllDigits) {
  EXPECT_THAT(PlanText(MakePlan(3, 1, 1234567, 10000001), {}),
              HasSubstr("mean load 3333333.667 / largest load 3333334"));
}

TEST(PlanTextTest, AllRanksOfPipelinesTakeSamples) {
  const auto text = [](std::int64_t nodes, std::int64_t gpus, std::int64_t target) {
    return PlanText(ValueOrThrow(Plan::Make({.nodes = nodes,
                                             .gpus_per_node = gpus,
                                             .micro_batch = 4,
                                             .target_batch = target,
                                             .stages = 4})),
                    {});
  };
  EXPECT_THAT(text(2, 4, 4),
              AllOf(HasSubstr("4 divides over 2 pipelines."), Not(HasSubstr("have no work"))));
  EXPECT_THAT(text(2, 4, 3),
              AllOf(HasSubstr("3 / 2 pipelines is not whole."), Not(HasSubstr("have no work"))));
  EXPECT_THAT(text(4, 4, 2), HasSubstr("the number of pipelines: 2 pipelines have no work."));
  EXPECT_THAT(text(2, 8, 6), AllOf(HasSubstr("--nodes=1 "), Not(HasSubstr("No node count"))));
  EXPECT_THAT(text(4, 8, 7), HasSubstr("No node count from 2 to 8 does."));
}

TEST(PlanTextTest, MicroBatches) {
  EXPECT_EQ(MicroBatchText(13, 1), "13");
  EXPECT_EQ(MicroBatchText(13, 2), "7 + 6");
  EXPECT_EQ(MicroBatchText(12, 2), "6 + 6");
  EXPECT_EQ(MicroBatchText(24, 3), "3 x 8");
  EXPECT_EQ(MicroBatchText(125, 4), "32 + 3 x 31");
  EXPECT_EQ(MicroBatchText(33, 5), "3 x 7 + 2 x 6");
}

}  // namespace
}  // namespace gaccd
