// Jobs with a sharded optimiser on CPUs: continued by any mode on any nodes, their plans, their
// selftests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/selftest/selftest_job.h"
#include "daemon/verbs/planned_run.h"
#include "tests/support/shard_resume_fixture.h"

namespace gaccd::tests {
namespace {

class ShardJobTest : public ShardResumeTest {
 protected:
  // An unsharded run adds in the order of a sharded one.
  Trained TrainOn(const Nodes& node_of, Sharding mode, std::int64_t every,
                  const std::string& from) {
    node_of_ = node_of;
    two_levels_ = mode == Sharding::kNone;
    return ValueOrThrow(Train(Normalized(mode), static_cast<int>(node_of.size()), every, from));
  }
};

// Saved on 5 ranks of two nodes; continued on 3, 7 and 1, each by another mode.
TEST_F(ShardJobTest, AnyModeResumesAnyOtherOnAnyNodes) {
  const Nodes five = {0, 0, 0, 1, 1};
  const auto plain = TrainOn(five, Sharding::kNone, 8, "never");
  const std::string unsharded = folder_ + "/unsharded";
  std::filesystem::rename(ckpt(), unsharded);
  const std::string saved = unsharded + CheckpointPath(8).substr(ckpt().size());
  struct Other {
    Nodes node_of;
    Sharding mode;
  };
  const std::vector<std::vector<Other>> continued = {
      {{{0, 0, 1}, Sharding::kNodeOptimizer}, {{0}, Sharding::kNode}},
      {{{0, 0, 0, 1, 1, 1, 1}, Sharding::kNode}, {{0, 1, 2}, Sharding::kNodeOptimizer}}};
  for (const Sharding mode : {Sharding::kNode, Sharding::kNodeOptimizer}) {
    SCOPED_TRACE(Name(mode));
    std::filesystem::remove_all(ckpt());
    const auto sharded = TrainOn(five, mode, 8, "never");
    EXPECT_EQ(sharded.weights, plain.weights);
    EXPECT_EQ(sharded.averaged, plain.averaged);
    EXPECT_EQ(sharded.evals, plain.evals);
    ExpectSameFiles(ckpt(), unsharded, 5, {8, 16, 24});
    for (const Other& other : continued[mode == Sharding::kNode ? 0 : 1]) {
      SCOPED_TRACE(StrCat(Name(other.mode), ", ", other.node_of.size(), " ranks"));
      const auto expected = TrainOn(other.node_of, Sharding::kNone, 0, saved);
      const auto resumed = TrainOn(other.node_of, other.mode, 0, CheckpointPath(8));
      EXPECT_EQ(resumed.first, 8);
      EXPECT_EQ(resumed.weights, expected.weights);
      EXPECT_EQ(resumed.averaged, expected.averaged);
      EXPECT_EQ(resumed.evals, expected.evals);
    }
  }
}

TEST_F(ShardJobTest, PlanReportsStateAndTrafficPerRank) {
  Job job = MediumJob(Sharding::kNone);
  job.optimizer.group.clear();
  job.model.layer = {{"fc1", LinearSpec{10, 1000, true}},
                     {"fc2", LinearSpec{1000, 1000, true}},
                     {"fc3", LinearSpec{1000, 2, true}}};
  const Plan plan = ValueOrThrow(MakePlan(job, 3, {}));
  // 1014032 values with padding, three of state for each; of 3 ranks each sends 2/3 of twice 4.1
  // MB.
  std::string text = PlannedRunText(job, plan);
  EXPECT_THAT(text, HasSubstr("weights 4.1 MB, gradients 4.1 MB, optimizer 12.2 MB,\n"));
  EXPECT_THAT(text, HasSubstr("a rank sends 5.4 MB an update:\n"));
  EXPECT_THAT(text, HasSubstr("one all-reduce of the gradients\n"));
  job.shard = Sharding::kOptimizer;
  text = PlannedRunText(job, plan);
  EXPECT_THAT(text, HasSubstr("weights 4.1 MB, gradients 4.1 MB, optimizer 4.1 MB of 12.2 MB,\n"));
  EXPECT_THAT(text, HasSubstr("a rank sends 5.4 MB an update:\n"));
  Job on_gpus = job;
  on_gpus.device = Device::kCuda;
  text = PlannedRunText(on_gpus, plan);
  EXPECT_THAT(text, HasSubstr("gradients 4.1 MB, optimizer 4.1 MB of 12.2 MB,\n"));
  EXPECT_THAT(text, HasSubstr("activations and copies of weights "));
  EXPECT_THAT(text, HasSubstr(" a rank on a GPU: model"));
  // On 2 nodes of 3 ranks each rank sends 5/6 of it, a node half of twice 4.1 MB to the other.
  job.shard = Sharding::kNodeOptimizer;
  text = PlannedRunText(job, ValueOrThrow(Plan::Make({.nodes = 2,
                                                      .gpus_per_node = 3,
                                                      .micro_batch = job.batch.micro,
                                                      .target_batch = *job.batch.target})));
  EXPECT_THAT(text, HasSubstr("optimizer 2.0 MB of 12.2 MB,\n"));
  EXPECT_THAT(text, HasSubstr("a rank sends 6.8 MB an update, a node 4.1 MB to other nodes:\n"));
  EXPECT_THAT(text, HasSubstr("      1      3  node-optimizer       4.1 MB"));
  EXPECT_THAT(text, HasSubstr("      3      9  node-optimizer       1.4 MB"));
  EXPECT_THAT(text, HasSubstr("      2      6  none                12.2 MB"));
  EXPECT_THAT(text, HasSubstr("      2      6  node                 4.1 MB"));
}

TEST_F(ShardJobTest, ThePlanNamesNoStateWhereTheOptimizerHasNone) {
  Job job = MediumJob(Sharding::kNone);
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
  const std::string text = PlannedRunText(job, ValueOrThrow(MakePlan(job, 3, {})));
  EXPECT_THAT(text, HasSubstr("none: this optimizer has no state\n"));
  EXPECT_THAT(text, testing::ContainsRegex("weights [^,]*, gradients [^,]*,\n"));
  EXPECT_THAT(text, HasSubstr(": model, gradients,\n"));
}

TEST_F(ShardJobTest, SelftestOfShardedJobPassesAndDetectsMistakes) {
  for (const Sharding shard : {Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
    const auto test = ValueOrThrow(RunJobSelftest(
        MediumJob(shard), {.nodes = 2, .gpus_per_node = 3, .micro_batch = 2, .target_batch = 33}));
    EXPECT_TRUE(test.passed()) << JobSelftestText(test);
    ASSERT_EQ(test.mistakes.size(), 5);
    for (const JobSelftest::Mistake& mistake : test.mistakes) {
      const bool reaches_nodes =
          shard != Sharding::kOptimizer || mistake.name != "sum of each node";
      EXPECT_EQ(mistake.has_effect, reaches_nodes) << mistake.name;
      if (mistake.has_effect) {
        EXPECT_GT(mistake.deviation, 1e-3) << mistake.name;
      }
    }
  }
  // One part has everything.
  const auto one = ValueOrThrow(
      RunJobSelftest(MediumJob(Sharding::kNode),
                     {.nodes = 3, .gpus_per_node = 1, .micro_batch = 2, .target_batch = 33}));
  EXPECT_TRUE(one.passed()) << JobSelftestText(one);
  EXPECT_EQ(std::ranges::count(one.mistakes, true, &JobSelftest::Mistake::has_effect), 1);
}

// Of 54 parameters, less than a block, one rank has all of the state: no cut can be wrong.
TEST_F(ShardJobTest, SelftestOfOneBlockModelPasses) {
  Job job = MediumJob(Sharding::kOptimizer);
  job.model.layer = {{"fc1", LinearSpec{10, 4, true}}, {"fc2", LinearSpec{4, 2, true}}};
  job.optimizer.group.clear();
  const auto test = ValueOrThrow(
      RunJobSelftest(job, {.nodes = 1, .gpus_per_node = 4, .micro_batch = 2, .target_batch = 33}));
  EXPECT_TRUE(test.passed()) << JobSelftestText(test);
}

}  // namespace
}  // namespace gaccd::tests
