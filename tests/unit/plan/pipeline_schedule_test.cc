// The schedules of pipelines, by what each promises, and the division of a model into stages
// against all divisions.
#include "daemon/plan/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <random>

#include "collectives/base/strings.h"
#include "daemon/plan/plan.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using Kind = PipelineAction::Kind;
constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB,
                                           PipelineSchedule::kZeroBubble};

TEST(PipelineScheduleTest, RunsEveryMicroBatchOnceWithFewInFlight) {
  for (const PipelineSchedule schedule : kSchedules) {
    for (std::int64_t stages = 1; stages <= 6; ++stages) {
      for (std::int64_t count = 0; count <= 9; ++count) {
        for (std::int64_t stage = 0; stage < stages; ++stage) {
          std::array<std::vector<std::int64_t>, 3> done;
          const auto& [forward, backward, weights] = done;
          const bool divides = DividesBackward(schedule, stage);
          const std::vector<std::int64_t>& last = divides ? weights : backward;
          std::int64_t most = 0;
          for (const PipelineAction& action : PipelineActions(schedule, stages, stage, count)) {
            done[static_cast<std::size_t>(action.kind)].push_back(action.micro_batch);
            most = std::max(most, std::ssize(forward) - std::ssize(last));
            EXPECT_GE(std::ssize(forward), std::ssize(backward));
            EXPECT_GE(std::ssize(backward), std::ssize(weights));
          }
          std::vector<std::int64_t> all(static_cast<std::size_t>(count));
          std::iota(all.begin(), all.end(), 0);
          EXPECT_EQ(forward, all);
          EXPECT_EQ(backward, all);
          EXPECT_EQ(weights, divides ? all : std::vector<std::int64_t>());
          EXPECT_EQ(most, InFlight(schedule, stages, stage, count));
        }
      }
    }
  }
  EXPECT_EQ(InFlight(PipelineSchedule::kOneFOneB, 4, 1, 100), 3);
  EXPECT_EQ(InFlight(PipelineSchedule::kGpipe, 4, 1, 100), 100);
  EXPECT_EQ(InFlight(PipelineSchedule::kGpipe, 4, 3, 100), 1);
  EXPECT_EQ(InFlight(PipelineSchedule::kZeroBubble, 4, 3, 100), 4);
}

// With F, B, W for a forward, the first part of a backward and that of weights, each stage computes
// m (F + B + W), and with at least as many micro-batches as stages waits (p - 1) (F + B - W).
TEST(PipelineScheduleTest, BubbleOfSplitBackwardEqualsFormula) {
  for (const int stages : {1, 2, 3, 4, 6}) {
    for (const int count : {stages, stages + 1, 3 * stages}) {
      const std::vector<StageCost> costs(static_cast<std::size_t>(stages), {2, 4, 2});
      const std::vector<std::int64_t> samples(static_cast<std::size_t>(count), 3);
      const PipelineTime time = PredictTime(PipelineSchedule::kZeroBubble, costs, samples);
      EXPECT_DOUBLE_EQ(time.total, 18.0 * count + 6.0 * (stages - 1)) << stages << " x " << count;
    }
  }
}

// Of equal stages and micro-batches (p - 1) / (m + p - 1) of the time is idle.
TEST(PipelineScheduleTest, BubbleEqualsFormula) {
  for (const PipelineSchedule schedule : {PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB}) {
    for (const int stages : {1, 2, 3, 5}) {
      for (const int count : {1, 2, 5, 16}) {
        const std::vector<StageCost> costs(static_cast<std::size_t>(stages), {2, 4});
        const std::vector<std::int64_t> samples(static_cast<std::size_t>(count), 3);
        const PipelineTime time = PredictTime(schedule, costs, samples);
        EXPECT_DOUBLE_EQ(time.total, 18.0 * (count + stages - 1));
        EXPECT_NEAR(time.idle_ratio, (stages - 1.0) / (count + stages - 1), 1e-12);
      }
    }
  }
}

TEST(PipelineScheduleTest, UnequalMicroBatchesAndStagesComplete) {
  std::mt19937 engine(7);
  const auto random = [&engine] { return static_cast<int>(engine() % 1000); };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<StageCost> costs(static_cast<std::size_t>(1 + random() % 5));
    for (StageCost& cost : costs) cost = {1.0 + random() % 4, 2.0 + random() % 7, 1};
    std::vector<std::int64_t> samples(static_cast<std::size_t>(1 + random() % 7));
    for (std::int64_t& count : samples) count = random() % 4;  // some have none
    for (const PipelineSchedule schedule : kSchedules) {
      const PipelineTime time = PredictTime(schedule, costs, samples);
      const auto all = static_cast<double>(std::reduce(samples.begin(), samples.end()));
      double path = 0;  // of the first micro-batch through all stages
      double most = 0;
      for (std::int64_t stage = 0; const StageCost& cost : costs) {
        const double later = DividesBackward(schedule, stage++) ? cost.weights : 0;
        path += (cost.forward + cost.backward - later) * static_cast<double>(samples.front());
        most = std::max(most, (cost.forward + cost.backward) * all);
      }
      EXPECT_GE(time.total, std::max(path, most));
      EXPECT_GE(time.idle_ratio, 0);
      EXPECT_LT(time.idle_ratio, 1);
    }
  }
}

double Worst(std::span<const double> costs, std::span<const std::int64_t> blocks) {
  double worst = 0;
  std::size_t at = 0;
  for (const std::int64_t count : blocks) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += costs[at++];
    worst = std::max(worst, sum);
  }
  return worst;
}

TEST(BalanceTest, IsBestOfAllDivisions) {
  std::mt19937 engine(3);
  const auto random = [&engine] { return static_cast<int>(engine() % 1000); };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<double> costs(static_cast<std::size_t>(1 + random() % 8));
    for (double& cost : costs) cost = static_cast<double>(random() % 6);
    const auto stages = static_cast<std::int64_t>(1 + random() % static_cast<int>(costs.size()));
    const auto found = ValueOrThrow(BalanceStages(costs, stages));
    EXPECT_EQ(std::ssize(found), stages);
    EXPECT_EQ(std::reduce(found.begin(), found.end()), std::ssize(costs));
    EXPECT_GE(std::ranges::min(found), 1);
    double best = 1e9;
    std::vector<std::int64_t> tried;
    const std::function<void(std::int64_t)> try_all = [&](std::int64_t left) {
      if (std::ssize(tried) + 1 == stages) {
        tried.push_back(left);
        best = std::min(best, Worst(costs, tried));
        tried.pop_back();
        return;
      }
      for (std::int64_t count = 1; count <= left - (stages - std::ssize(tried) - 1); ++count) {
        tried.push_back(count);
        try_all(left - count);
        tried.pop_back();
      }
    };
    try_all(std::ssize(costs));
    EXPECT_EQ(Worst(costs, found), best);
  }
  EXPECT_THAT(BalanceStages(std::vector<double>{1, 2}, 3).status(), HasKind(ErrorKind::kConfig));
}

// Of frozen blocks, which have no gradient to send.
TEST(BalanceTest, FirstStageHasTheBlocksItNeeds) {
  const std::vector<double> costs{9, 1, 1, 1};
  EXPECT_THAT(BalanceStages(costs, 2).value(), testing::ElementsAre(1, 3));
  EXPECT_THAT(BalanceStages(costs, 2, 3).value(), testing::ElementsAre(3, 1));
  EXPECT_THAT(BalanceStages(costs, 1, 4).value(), testing::ElementsAre(4));
  EXPECT_THAT(BalanceStages(costs, 2, 4).status(),
              IsError(ErrorKind::kConfig, "2 stages and 4 blocks; the first stage needs 4"));
}

TEST(PipelinePlanTest, SamplesOfPipelineEqualThoseOfItsRanks) {
  for (const std::int64_t stages : {1, 2, 3, 4}) {
    const PlanRequest request{.nodes = 3,
                              .gpus_per_node = stages,
                              .micro_batch = 4,
                              .target_batch = 22,
                              .stages = stages};
    const Plan plan = ValueOrThrow(Plan::Make(request));
    const Plan alone = ValueOrThrow(
        Plan::Make({.nodes = 3, .gpus_per_node = 1, .micro_batch = 4, .target_batch = 22}));
    EXPECT_EQ(plan.world(), 3 * stages);
    EXPECT_EQ(plan.pipelines(), 3);
    EXPECT_EQ(plan.accum_steps(), alone.accum_steps());
    EXPECT_EQ(plan.ranks_hi() + plan.ranks_lo(), plan.world());
    EXPECT_EQ(plan.balance_ratio(), alone.balance_ratio());
    for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
      EXPECT_EQ(plan.Load(rank), alone.Load(rank / stages));
      EXPECT_EQ(plan.Offset(rank), alone.Offset(rank / stages));
      EXPECT_EQ(plan.MicroBatch(rank, 1), alone.MicroBatch(rank / stages, 1));
    }
  }
  const PlanRequest odd{.nodes = 1, .gpus_per_node = 5, .target_batch = 8, .stages = 2};
  EXPECT_THAT(Plan::Make(odd).status(), HasKind(ErrorKind::kConfig));
}

}  // namespace
}  // namespace gaccd
