// Pipelines: updates of stages equal those of whole models, whatever the schedule and the samples
// of each pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/sanitized.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

// per_node: pipelines; 0: all are on one node.
std::vector<EngineRun> RunPipelines(EngineCase test, int stages, PipelineSchedule schedule,
                                    int per_node = 0) {
  test.stages = stages;
  test.schedule = schedule;
  const int ranks = test.ranks * stages;
  std::vector<EngineRun> runs(static_cast<std::size_t>(ranks));
  const Status status = RunThreadRanks(
      ranks, {.ranks_per_node = per_node * stages}, [&](Communicator& comm) -> Status {
        GACCD_ASSIGN_OR_RETURN(runs[static_cast<std::size_t>(comm.rank())],
                               RunEngine(comm, test, {}, {.gradients = true}));
        return Status::Ok();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  return runs;
}

void ExpectNear(const EngineRun& found, const EngineRun& expected) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < found.results.size(); ++u) {
    const UpdateResult& a = found.results[u];
    const UpdateResult& b = expected.results[u];
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_EQ(a.divisor, b.divisor);
    EXPECT_NEAR(a.loss, b.loss, 1e-6 * b.loss);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-5 * b.grad_norm);
    EXPECT_LT(Distance(found.gradients[u], expected.gradients[u]), 1e-5);
  }
  EXPECT_LT(Distance(found.parameters, expected.parameters), 1e-6);
  EXPECT_LT(Distance(found.state, expected.state), 1e-5);
  EXPECT_EQ(found.optimizer_updates, expected.optimizer_updates);
}

void ExpectWhole(const EngineCase& test, int stages, PipelineSchedule schedule, int per_node = 0) {
  SCOPED_TRACE(StrCat(test.name, ", ", test.ranks, " pipelines of ", stages, " stages, ",
                      test.target, " samples"));
  EngineCase unsharded = test;
  unsharded.shard = Sharding::kNone;
  const std::vector<EngineRun> whole = RunPipelines(unsharded, 1, schedule);
  const std::vector<EngineRun> found = RunPipelines(test, stages, schedule, per_node);
  ASSERT_FALSE(::testing::Test::HasFailure());
  for (const EngineRun& run : found) {
    ExpectNear(run, whole.front());
    // What is saved is one model.
    EXPECT_EQ(run.parameters, found.front().parameters);
    EXPECT_EQ(run.digest, found.front().digest);
  }
  for (std::size_t last = stages - 1; last < found.size(); last += stages) {
    EXPECT_NEAR(found[last].evaluation.loss_sum, whole.front().evaluation.loss_sum,
                1e-6 * whole.front().evaluation.loss_sum);
  }
}

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB,
                                           PipelineSchedule::kZeroBubble};

TEST(PipelineTest, EqualsTheWholeModel) {
  for (const PipelineSchedule schedule : kSchedules) {
    for (const int stages : {2, 3, 4}) {
      for (const std::int64_t steps : {1, 2, 5}) {
        // Ragged: of the last micro-step some pipelines have fewer samples or none.
        ExpectWhole({.name = "layers",
                     .ranks = 3,
                     .micro = 4,
                     .target = 3 * 4 * steps - 2,
                     .updates = 6,
                     .tail = 4,
                     .dropout = 0.2},
                    stages, schedule);
      }
    }
  }
}

// A masked BERT: its output weights are the word embeddings, which the first stage owns and the
// last one uses. Texts are cut to their lengths.
TEST(PipelineTest, SharesTiedWeights) {
  // The gradient of a key's bias is 0 but for rounding: nothing for optimisers that divide by it.
  for (const NamedOptimizer& optimizer : kEveryOptimizer) {
    if (!std::holds_alternative<SgdSpec>(optimizer.spec.kind)) continue;
    for (const int stages : {2, 4}) {
      for (const auto schedule : {PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble}) {
        if (tests::kSanitized && (stages == 4) != (schedule == PipelineSchedule::kZeroBubble)) {
          continue;
        }
        ExpectWhole({.name = optimizer.name,
                     .ranks = 2,
                     .micro = 3,
                     .target = 13,
                     .updates = 4,
                     .widths = {16, 5},
                     .optimizer = optimizer.spec,
                     .clip_norm = 0.05,
                     .texts = 12,
                     .cut = 4,
                     .masked = true},
                    stages, schedule);
      }
    }
  }
}

TEST(PipelineTest, StepsByEveryOptimizer) {
  for (const NamedOptimizer& optimizer : kEveryOptimizer) {
    ExpectWhole({.name = optimizer.name,
                 .ranks = 2,
                 .micro = 4,
                 .target = 13,
                 .updates = 4,
                 .optimizer = optimizer.spec,
                 .clip_norm = 0.1},
                2, PipelineSchedule::kOneFOneB);
  }
}

// Stages of 3 blocks of parameters and more: of a state some ranks have one, some two.
TEST(PipelineTest, DividesTheStateOfAStage) {
  EngineCase test{.name = "sharded",
                  .ranks = 4,
                  .micro = 4,
                  .target = 29,
                  .updates = 5,
                  .tail = 3,  // one pipeline has nothing then
                  .widths = {24, 90, 70, 60, 5},
                  .optimizer = {.lr = 0.01,
                                .kind = AdamWSpec{},
                                .group = {{.match = "fc2.bias", .freeze = true}},
                                .ema = EmaSpec{0.75}},
                  .clip_norm = 0.1};
  const EngineRun plain = RunPipelines(test, 2, PipelineSchedule::kOneFOneB).front();
  for (const Sharding shard : {Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
    test.shard = shard;
    for (const int per_node : {0, 2, 3}) {  // of 4 pipelines
      SCOPED_TRACE(StrCat("shard ", static_cast<int>(shard), ", ", per_node, " pipelines a node"));
      ExpectWhole(test, 2, PipelineSchedule::kOneFOneB, per_node);
    }
    ExpectWhole(test, 3, PipelineSchedule::kGpipe, 2);
    // On one node the bits are those of stages that are not sharded.
    const EngineRun found = RunPipelines(test, 2, PipelineSchedule::kOneFOneB).front();
    EXPECT_EQ(found.parameters, plain.parameters);
    EXPECT_EQ(found.state, plain.state);
  }
}

TEST(PipelineTest, FrozenParametersAndSmallStagesAndPrecisions) {
  EngineCase test{.name = "frozen",
                  .ranks = 2,
                  .micro = 4,
                  .target = 15,
                  .updates = 5,
                  .tail = 1,  // one pipeline has nothing then
                  .optimizer = {.lr = 0.01,
                                .kind = AdamWSpec{},
                                .group = {{.match = "fc2.weight", .freeze = true}},
                                .ema = EmaSpec{0.75}}};
  ExpectWhole(test, 5, PipelineSchedule::kOneFOneB);
  ExpectWhole(test, 5, PipelineSchedule::kZeroBubble);
  test.name = "bf16";
  test.numerics.precision = Precision::kBF16;
  ExpectWhole(test, 2, PipelineSchedule::kGpipe);
  ExpectWhole(test, 2, PipelineSchedule::kZeroBubble);
}

}  // namespace
}  // namespace gaccd::tests
