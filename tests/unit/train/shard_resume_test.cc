// Trainings with a sharded optimiser: saved, resumed on other ranks and unsharded, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "collectives/base/files.h"
#include "daemon/checkpoint/shard.h"
#include "daemon/selftest/selftest_job.h"
#include "daemon/verbs/planned_run.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/two_level_comm.h"

namespace gaccd {
namespace {

using tests::Place;
using tests::ResumeTest;
using tests::SmallJob;

class ShardResumeTest : public ResumeTest {
 protected:
  Status RunRanks(int ranks, const RankBody& body) override {
    return RunThreadRanks(
        ranks, {.comm = {}, .node_of = node_of_}, [&](Communicator& comm) -> Status {
          if (!two_levels_) return body(comm, {}, nullptr);
          GACCD_ASSIGN_OR_RETURN(const auto two_levels, tests::TwoLevelCommunicator::Make(comm));
          return body(*two_levels, {}, nullptr);
        });
  }
  // By rank its node. An unsharded run adds in the order of a sharded one.
  Trained TrainOn(const std::vector<int>& node_of, Sharding mode, std::int64_t every,
                  const std::string& from) {
    node_of_ = node_of;
    two_levels_ = mode == Sharding::kNone;
    return ValueOrThrow(
        Train(Normalized(MediumJob(mode)), static_cast<int>(node_of.size()), every, from));
  }
  void ExpectSameFiles(const std::string& a, const std::string& b, int ranks) {
    for (const std::int64_t step : {8, 16, 24}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const std::string name =
            StrCat("/", Generation{.epoch = 1, .step = step}.name(), "/", ShardName(rank, ranks));
        EXPECT_EQ(ValueOrThrow(ReadStart(a + name, 1 << 20)),
                  ValueOrThrow(ReadStart(b + name, 1 << 20)))
            << name;
      }
    }
  }

  // 6 blocks of parameters, a part of which is frozen.
  static Job MediumJob(Sharding shard) {
    Job job = SmallJob();
    job.model.layer = {{"fc1", LinearSpec{10, 96, true}},
                       {"relu1", ReluSpec{}},
                       {"fc2", LinearSpec{96, 50, true}},
                       {"relu2", ReluSpec{}},
                       {"fc3", LinearSpec{50, 2, true}}};
    job.optimizer.group = {{.match = "fc1.weight", .freeze = true}};
    job.optimizer.ema = EmaSpec{0.75};
    job.clip_norm = 0.1;
    job.shard = shard;
    return job;
  }
  // With statistics of whole updates.
  static Job Normalized(Job job) {
    job.model.layer.insert(job.model.layer.begin() + 1, {"norm", BatchNormSpec{96}});
    return job;
  }

  std::vector<int> node_of_;  // empty: one node
  bool two_levels_ = false;
};

TEST_F(ShardResumeTest, CheckpointsAndResultsAreThoseOfAnUnshardedRun) {
  const auto job = [&](Sharding shard) { return Normalized(MediumJob(shard)); };
  const auto plain = ValueOrThrow(Train(job(Sharding::kNone), 5, 8, "never"));
  const std::string unsharded = folder_ + "/unsharded";
  std::filesystem::rename(ckpt(), unsharded);
  const auto sharded = ValueOrThrow(Train(job(Sharding::kOptimizer), 5, 8, "never"));
  EXPECT_EQ(sharded.weights, plain.weights);
  EXPECT_EQ(sharded.averaged, plain.averaged);
  EXPECT_EQ(sharded.evals, plain.evals);
  ExpectSameFiles(ckpt(), unsharded, 5);
  // Either continues the other's: what is right on so many ranks an unsharded run knows.
  const std::string there = PathOf(8);
  const std::string other = unsharded + there.substr(ckpt().size());
  for (const int ranks : {1, 3, 7}) {
    const auto expected = ValueOrThrow(Train(job(Sharding::kNone), ranks, 0, other));
    const auto resumed = ValueOrThrow(Train(job(Sharding::kOptimizer), ranks, 0, there));
    EXPECT_EQ(resumed.first, 8);
    EXPECT_EQ(resumed.weights, expected.weights) << ranks << " ranks";
    EXPECT_EQ(resumed.averaged, expected.averaged) << ranks << " ranks";
    EXPECT_EQ(resumed.evals, expected.evals) << ranks << " ranks";
  }
  const auto back = ValueOrThrow(Train(job(Sharding::kNone), 5, 0, there));
  EXPECT_EQ(back.weights, plain.weights);
  const auto again = ValueOrThrow(Train(job(Sharding::kOptimizer), 5, 0, other));
  EXPECT_EQ(again.averaged, plain.averaged);
}

// Saved on 5 ranks of two nodes; continued on 3, 7 and 1, each by another mode.
TEST_F(ShardResumeTest, AnyModeContinuesAnyOtherOnAnyNodes) {
  const std::vector<int> five = {0, 0, 0, 1, 1};
  const auto plain = TrainOn(five, Sharding::kNone, 8, "never");
  const std::string unsharded = folder_ + "/unsharded";
  std::filesystem::rename(ckpt(), unsharded);
  const std::string saved = unsharded + PathOf(8).substr(ckpt().size());
  struct Other {
    std::vector<int> node_of;
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
    ExpectSameFiles(ckpt(), unsharded, 5);
    for (const Other& other : continued[mode == Sharding::kNode ? 0 : 1]) {
      SCOPED_TRACE(StrCat(Name(other.mode), ", ", other.node_of.size(), " ranks"));
      const auto expected = TrainOn(other.node_of, Sharding::kNone, 0, saved);
      const auto resumed = TrainOn(other.node_of, other.mode, 0, PathOf(8));
      EXPECT_EQ(resumed.first, 8);
      EXPECT_EQ(resumed.weights, expected.weights);
      EXPECT_EQ(resumed.averaged, expected.averaged);
      EXPECT_EQ(resumed.evals, expected.evals);
    }
  }
}

TEST_F(ShardResumeTest, InsideAnUpdateTheSameMicroStepsGoOn) {
  const auto plain = ValueOrThrow(Train(MediumJob(Sharding::kNone), 3, 0, "never"));
  for (const Place& stop : {Place{1, 1}, Place{4, 2}}) {
    std::filesystem::remove_all(ckpt());
    ASSERT_THAT(Train(MediumJob(Sharding::kOptimizer), 3, 100, "never", stop),
                HasKind(ErrorKind::kTempFail));
    for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer, Sharding::kNodeOptimizer}) {
      const auto resumed = ValueOrThrow(Train(MediumJob(shard), 3, 0, "auto"));
      EXPECT_EQ(resumed.first, stop.update - 1);
      EXPECT_EQ(resumed.weights, plain.weights) << stop.update << ", " << stop.done;
      EXPECT_EQ(resumed.averaged, plain.averaged);
    }
  }
}

TEST_F(ShardResumeTest, ThePlanSaysWhatARankKeepsAndSends) {
  Job job = MediumJob(Sharding::kNone);
  job.optimizer.group.clear();
  job.model.layer = {{"fc1", LinearSpec{10, 1000, true}},
                     {"fc2", LinearSpec{1000, 1000, true}},
                     {"fc3", LinearSpec{1000, 2, true}}};
  const Plan plan = ValueOrThrow(tests::MakePlan(job, 3, {}));
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

TEST_F(ShardResumeTest, TheSelftestOfAShardedJobPassesAndCatchesMistakes) {
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

}  // namespace
}  // namespace gaccd
