// Trainings whose batch norms normalise micro-batches by themselves. What they compute:
// tests/golden/train/*_micro.txtpb.
#include "daemon/train/batch_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/selftest/selftest_job.h"
#include "daemon/train/planned_run.h"
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
  return TrainingInputs::Open(*comm, job, *MakePlan(job, ranks)).status();
}

TEST(MicroBatchNormTest, OneValueOfAChannelIsRefusedBeforeTheTraining) {
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

TEST(MicroBatchNormTest, RanksWithoutSamplesHaveTheSameStatistics) {
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

TEST(MicroBatchNormTest, LoadsDoNotFollowMeasuredTimes) {
  EXPECT_THAT(tests::Train(MicroJob(32, 4), {.ranks = 2, .loads = {.always = true}}).status[0],
              IsError(ErrorKind::kConfig, "other loads change the micro-batches"));
}

TEST(MicroBatchNormTest, ThePlanSaysThatItIsNotOneBigBatch) {
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

TEST(MicroBatchNormTest, TheSelftestHasNothingToCompareWith) {
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

// The statistics of the micro-batches before are in the checkpoint.
TEST_F(MicroBatchNormRunTest, InsideAnUpdateTheSameMicroStepsGoOn) {
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

TEST_F(MicroBatchNormRunTest, OtherMicroBatchesAfterAResumeAreAWarning) {
  Job job = NormalisedJob();
  job.optimizer.ema = EmaSpec{0.75};
  const auto plain = ValueOrThrow(Train(job, 3, 10, "never"));
  EXPECT_NE(plain.averaged, plain.weights);
  const auto same = ValueOrThrow(Train(job, 3, 0, PathOf(10)));
  EXPECT_EQ(same.averaged, plain.averaged);
  EXPECT_THAT(same.warnings, ::testing::Not(HasSubstr("batch_norm")));
  job.batch.micro = 16;
  EXPECT_THAT(
      ValueOrThrow(Train(job, 3, 0, PathOf(10))).warnings,
      HasSubstr("batch_norm normalises micro-batches of 10 or 11 samples from here on, before "
                "the resume of 3 or 4 samples"));
}

}  // namespace
}  // namespace gaccd
