// Trainings whose batch norms normalise micro-batches, or runs of samples, by themselves. What they
// compute: tests/golden/train/*_micro.txtpb, *_ghost.txtpb.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "daemon/selftest/selftest_job.h"
#include "daemon/train/training_checks.h"
#include "daemon/verbs/planned_run.h"
#include "tests/support/engine_runs.h"
#include "tests/support/rank_training.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;
using tests::Distance;
using tests::MakePlan;
using tests::Place;
using tests::ResumeTest;

// 230 samples an epoch. Values of a channel in one sample: `pixels`, 1 or 2.
Job MicroJob(std::int64_t target, std::int64_t micro, std::int64_t pixels = 1) {
  Job job = tests::SmallRegression();
  const std::int64_t channels = 10 / pixels;
  job.model.layer = {
      {"image", UnflattenSpec{channels, 1, pixels}},
      {"bn", BatchNormSpec{.num_features = channels, .stats = BatchStatistics::kMicro}},
      {"flatten", FlattenSpec{}},
      {"fc", LinearSpec{10, 2, true}}};
  job.batch.target = target;
  job.batch.micro = micro;
  job.optimizer = {.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}};
  job.epochs = 1;
  return job;
}

Status Open(const Job& job, int ranks) {
  const auto comm = MakeSingle();
  return tests::OpenInputs(*comm, job, *MakePlan(job, ranks)).status();
}

TEST(MicroBatchNormTest, RefusesOneValuePerChannelBeforeTraining) {
  EXPECT_OK(Open(MicroJob(32, 4), 3)) << "4 or 3; the last 6 as 2 and 2 and 2";
  EXPECT_THAT(Open(MicroJob(32, 4), 20), IsError(ErrorKind::kConfig, "found 1 in updates of 32"));
  // 5 samples of 225 + 5 on three ranks: 2, 2, 1.
  Job job = MicroJob(45, 4);
  EXPECT_THAT(Open(job, 3),
              IsError(ErrorKind::kConfig, "the smaller update of 5", "--last-cycle=drop"));
  job.batch.last_cycle = LastCycle::kDrop;
  EXPECT_OK(Open(job, 3));
  EXPECT_OK(Open(MicroJob(32, 1, 2), 7)) << "a sample has two values";
}

TEST(MicroBatchNormTest, RanksWithoutSamplesHaveSameStatistics) {
  const tests::Trained found = tests::Train(MicroJob(5, 1, 2), {.ranks = 7});
  for (std::size_t rank = 0; rank < found.status.size(); ++rank) {
    ASSERT_OK(found.status[rank]);
    EXPECT_EQ(found.weights[rank], found.weights[0]) << rank;
  }
  const tests::Trained other = tests::Train(MicroJob(5, 1, 2), {.ranks = 2});
  EXPECT_LT(Distance(other.weights[0], found.weights[0]), 1e-6) << "the same micro-batches, of 1";
  const tests::Trained whole = tests::Train(MicroJob(5, 5, 2), {.ranks = 1});
  EXPECT_GT(Distance(whole.weights[0], found.weights[0]), 1e-3) << "another training";
}

TEST(MicroBatchNormTest, RefusesMeasuredLoads) {
  EXPECT_THAT(tests::Train(MicroJob(32, 4), {.ranks = 2, .loads = {.always = true}}).status[0],
              IsError(ErrorKind::kConfig, "other loads change the micro-batches"));
}

TEST(MicroBatchNormTest, PlanReportsThatItIsNotOneBigBatch) {
  const auto text = [](const Job& job, int ranks) {
    return PlannedRunText(job, *MakePlan(job, ranks));
  };
  EXPECT_THAT(
      text(MicroJob(32, 4), 3),
      HasSubstr("statistics     MICRO, of each micro-batch by itself, of 3 or 4 samples: the "
                "result is\n                 not that of one batch of 32, and depends on "
                "ranks and micro-batch\n"));
  EXPECT_THAT(text(MicroJob(32, 4), 20), HasSubstr("found 1 in updates of 32 on 20 ranks"));
  const Job plain = tests::SmallJob();
  EXPECT_THAT(text(plain, 3), ::testing::Not(HasSubstr("MICRO")));
}

TEST(MicroBatchNormTest, SelftestHasNoReference) {
  const Job job = MicroJob(32, 4);
  EXPECT_THAT(
      RunJobSelftest(job, {.nodes = 1, .gpus_per_node = 2, .micro_batch = 4, .target_batch = 32}),
      IsError(ErrorKind::kConfig, "MICRO", "one big batch"));
}

class MicroBatchNormRunTest : public ResumeTest {
 protected:
  static Job NormalisedJob() {
    Job job = tests::SmallJob();
    job.model.layer.insert(
        job.model.layer.begin() + 1,
        {"bn", BatchNormSpec{.num_features = 16, .stats = BatchStatistics::kMicro}});
    return job;
  }
};

Job GhostJob(std::int64_t target, std::int64_t micro, std::int64_t ghost, std::int64_t pixels = 1) {
  Job job = MicroJob(target, micro, pixels);
  auto& norm = std::get<BatchNormSpec>(job.model.layer[1].kind);
  norm.stats = BatchStatistics::kGhost;
  norm.ghost_size = ghost;
  // A gradient through the statistics.
  job.model.layer.insert(job.model.layer.begin(), {"fc0", LinearSpec{10, 10, true}});
  return job;
}

// Runs of 7 of 45 samples, which ranks and micro-batches divide; the last of 3.
TEST(GhostBatchNormTest, IsSameOnAnyRanksAndMicroBatches) {
  const tests::Trained alone = tests::Train(GhostJob(45, 45, 7), {.ranks = 1});
  ASSERT_OK(alone.status[0]);
  for (const auto& [ranks, micro] : {std::pair{1, 2}, {3, 4}, {7, 3}, {60, 1}}) {
    const tests::Trained found = tests::Train(GhostJob(45, micro, 7), {.ranks = ranks});
    for (std::size_t rank = 0; rank < found.status.size(); ++rank) {
      ASSERT_OK(found.status[rank]);
      EXPECT_EQ(found.weights[rank], found.weights[0]) << rank;
    }
    EXPECT_LT(Distance(found.weights[0], alone.weights[0]), 1e-6) << ranks << " x " << micro;
  }
  const tests::Trained other = tests::Train(GhostJob(45, 45, 9), {.ranks = 1});
  EXPECT_GT(Distance(other.weights[0], alone.weights[0]), 1e-3) << "another training";
}

TEST(GhostBatchNormTest, RefusesSingleLastSample) {
  EXPECT_OK(Open(GhostJob(45, 4, 7), 3));
  EXPECT_THAT(Open(GhostJob(45, 4, 11), 3), IsError(ErrorKind::kConfig, "ghost_size 11",
                                                    "the last samples of updates of 45 are 1"));
  EXPECT_THAT(Open(GhostJob(45, 4, 4, 2), 3), IsOk()) << "a sample has two values";
  EXPECT_THAT(Open(GhostJob(45, 4, 2), 3), HasKind(ErrorKind::kConfig));
  Job job = GhostJob(75, 4, 4);  // 3 updates of 75, then 5
  EXPECT_THAT(Open(job, 3), IsError(ErrorKind::kConfig, "the smaller update", "--last-cycle=drop"));
  job.batch.last_cycle = LastCycle::kDrop;
  EXPECT_OK(Open(job, 3));
}

TEST(GhostBatchNormTest, PlanAndSelftestIncludeRuns) {
  const Job job = GhostJob(32, 4, 8);
  EXPECT_THAT(PlannedRunText(job, *MakePlan(job, 2)),
              HasSubstr("statistics     of every 8 samples in a row: 2 reductions"));
  const auto test = [&](std::int64_t ranks, std::int64_t micro) {
    return ValueOrThrow(RunJobSelftest(
        job, {.nodes = 1, .gpus_per_node = ranks, .micro_batch = micro, .target_batch = 32}));
  };
  // Ranks divide runs, or have whole ones; the latter in micro-batches, too.
  for (const auto& [ranks, micro, effects] : {std::tuple{3, 4, 6}, {2, 4, 4}, {2, 8, 3}}) {
    const JobSelftest found = test(ranks, micro);
    EXPECT_TRUE(found.passed()) << JobSelftestText(found);
    EXPECT_EQ(std::ranges::count(found.mistakes, true, &JobSelftest::Mistake::has_effect), effects)
        << ranks << " x " << micro;
  }
}

// The statistics of the micro-batches before are in the checkpoint.
TEST_F(MicroBatchNormRunTest, ContinuesInsideUpdateWithSameMicroSteps) {
  const Job job = NormalisedJob();
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  for (const Place& stop : {Place{1, 1}, Place{4, 2}, Place{19, 2}}) {
    std::filesystem::remove_all(ckpt());
    ASSERT_THAT(Train(job, 3, 100, "never", stop), HasKind(ErrorKind::kTempFail));
    const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
    EXPECT_EQ(resumed.first, stop.update - 1);
    EXPECT_EQ(resumed.weights, plain.weights) << stop.update << ", " << stop.done;
    EXPECT_EQ(resumed.evals.back(), plain.evals.back());
  }
}

TEST_F(MicroBatchNormRunTest, WarnsOfOtherMicroBatchesAfterResume) {
  Job job = NormalisedJob();
  job.optimizer.ema = EmaSpec{0.75};
  const auto plain = ValueOrThrow(Train(job, 3, 10, "never"));
  EXPECT_NE(plain.averaged, plain.weights);
  const auto same = ValueOrThrow(Train(job, 3, 0, CheckpointPath(10)));
  EXPECT_EQ(same.averaged, plain.averaged);
  EXPECT_THAT(same.warnings, ::testing::Not(HasSubstr("batch_norm")));
  job.batch.micro = 16;
  EXPECT_THAT(
      ValueOrThrow(Train(job, 3, 0, CheckpointPath(10))).warnings,
      HasSubstr("batch_norm normalises micro-batches of 10 or 11 samples from here on, before "
                "the resume of 3 or 4 samples"));
}

}  // namespace
}  // namespace gaccd
