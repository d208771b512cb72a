// Pipelines on CPUs alone: every optimiser, and stages that divide their state.
#include <gtest/gtest.h>

#include <vector>

#include "collectives/base/strings.h"
#include "tests/support/pipeline_runs.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

TEST(CpuPipelines, StepsByEveryOptimizer) {
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
TEST(CpuPipelines, DividesTheStateOfAStage) {
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
  const auto stages_of = [](const EngineCase& of) {
    return RunTestedRanks(InStages(of, 2, PipelineSchedule::kOneFOneB)).at(0);
  };
  const EngineRun plain = stages_of(test);
  for (const Sharding shard : {Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
    test.shard = shard;
    for (const int per_node : {0, 2, 3}) {  // of 4 pipelines
      SCOPED_TRACE(StrCat("shard ", static_cast<int>(shard), ", ", per_node, " pipelines a node"));
      EngineRanks ranks = WithGradients();
      ranks.node_of = NodesOfPipelines(test.ranks, 2, per_node);
      ExpectWhole(test, 2, PipelineSchedule::kOneFOneB, 1e-6, ranks);
    }
    EngineRanks two_a_node = WithGradients();
    two_a_node.node_of = NodesOfPipelines(test.ranks, 3, 2);
    ExpectWhole(test, 3, PipelineSchedule::kGpipe, 1e-6, two_a_node);
    // On one node the bits are those of stages that are not sharded.
    const EngineRun found = stages_of(test);
    EXPECT_EQ(found.parameters, plain.parameters);
    EXPECT_EQ(found.state, plain.state);
  }
}

}  // namespace
}  // namespace gaccd::tests
