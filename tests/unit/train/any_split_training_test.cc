// Trainings with `bits: ANY_SPLIT`: checkpoints and stops on other ranks, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "tests/support/engine_runs.h"
#include "tests/support/file_util.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::ResumeTest;
using tests::SmallJob;

// 32 samples in 7 micro-batches, the last update of an epoch 6 samples in 2.
Job AnySplitJob() {
  Job job = SmallJob();
  job.model.layer[0].kind = LinearSpec{10, 16, false};
  job.model.layer.insert(job.model.layer.begin() + 1, {"bn", BatchNormSpec{.num_features = 16}});
  job.batch.bits = Bits::kAnySplit;
  job.optimizer.ema = EmaSpec{0.75};
  return job;
}

class AnySplitTrainingTest : public ResumeTest {
 protected:
  // So many samples of 10 features around the offset of their sample, and 2 targets; functions of
  // the number of the sample.
  NpySpec Waves(
      std::size_t samples, const std::function<float(std::size_t sample)>& offset,
      const std::function<std::size_t(std::size_t)>& number = [](std::size_t i) { return i; }) {
    std::vector<float> features, targets;
    for (std::size_t i = 0; i < samples; ++i) {
      const std::size_t sample = number(i);
      for (std::size_t f = 0; f < 10; ++f) {
        features.push_back(offset(sample) + std::sin(static_cast<float>(10 * sample + f)));
      }
      for (std::size_t t = 0; t < 2; ++t) {
        targets.push_back(std::cos(static_cast<float>(2 * sample + t)));
      }
    }
    return {.features = temp_.Write("f", NpyFloats(features, 10)),
            .targets = temp_.Write("t", NpyFloats(targets, 2))};
  }
};

TEST_F(AnySplitTrainingTest, ContinuesOnOtherRanksWithSameBits) {
  const Job job = AnySplitJob();
  const auto plain = ValueOrThrow(Train(job, 1, 10, "never"));
  for (const int ranks : {3, 8}) {
    SCOPED_TRACE(ranks);
    const auto other = ValueOrThrow(Train(job, ranks, 0, "never"));
    EXPECT_EQ(other.weights, plain.weights);
    EXPECT_EQ(other.averaged, plain.averaged);
    EXPECT_EQ(other.evals, plain.evals);
    const auto resumed = ValueOrThrow(Train(job, ranks, 0, CheckpointPath(10)));
    EXPECT_EQ(resumed.first, 10);
    EXPECT_EQ(resumed.weights, plain.weights);
    EXPECT_EQ(resumed.averaged, plain.averaged);
  }
}

// Sums of more than 32 squares of floats are rounded in double precision, too, and the variance of
// large values is a small difference of them.
TEST_F(AnySplitTrainingTest, StatisticsOfLargeValues) {
  Job job = AnySplitJob();
  job.model.layer.insert(job.model.layer.begin(), {"large", BatchNormSpec{.num_features = 10}});
  job.data = {.train = Waves(600, [](std::size_t) { return 3e4F; })};
  job.batch.target = 200;
  const auto plain = ValueOrThrow(Train(job, 1, 0, "never"));
  for (const int ranks : {2, 5, 8}) {
    EXPECT_EQ(ValueOrThrow(Train(job, ranks, 0, "never")).weights, plain.weights) << ranks;
  }
}

// The micro-batches were computed once more to find the one with sample 20, those of 18 to 21.
TEST_F(AnySplitTrainingTest, DroppedMicroBatchIsNotInSums) {
  Job job = AnySplitJob();
  job.model.layer.erase(job.model.layer.begin() + 1);
  job.model.layer.erase(job.model.layer.begin() + 2);  // dropout knows its samples
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
  job.epochs = 1;
  const auto train = [&](std::size_t samples,
                         const std::function<std::size_t(std::size_t)>& number) {
    job.data = {.train = Waves(
                    samples, [](std::size_t i) { return i == 20 ? 1e7F : 0; }, number),
                .shuffle = false};
    job.batch.target = static_cast<std::int64_t>(samples);
    return ValueOrThrow(Train(job, 2, 0, "never")).weights;
  };
  guards_.on_nonfinite = OnNonfinite::kDropMicroBatch;
  const auto found = train(32, [](std::size_t i) { return i; });
  job.batch.bits = Bits::kThisSplit;
  const auto expected = train(28, [](std::size_t i) { return i < 18 ? i : i + 4; });
  EXPECT_LT(tests::Distance(found, expected), 1e-6);
}

TEST_F(AnySplitTrainingTest, NamesTooLargeGradient) {
  Job job = AnySplitJob();
  job.model.layer.erase(job.model.layer.begin() + 1);
  job.data = {.train = Waves(90, [](std::size_t sample) { return sample == 20 ? 1e7F : 0; }),
              .shuffle = false};
  job.clip_norm = 1;
  EXPECT_THAT(Train(job, 2, 0, "never"),
              IsError(ErrorKind::kNoRequeue, "update 1: training diverged",
                      "is not below 2^20, the limit of --bits=any-split; samples 18, 19, 20, 21"));
  job.batch.bits = Bits::kThisSplit;
  EXPECT_OK(Train(job, 2, 0, "never"));
}

TEST_F(AnySplitTrainingTest, InterruptedUpdateIsRepeated) {
  Job job = SmallJob();
  job.batch.bits = Bits::kAnySplit;
  const auto plain = ValueOrThrow(Train(job, 1, 0, "never"));
  EXPECT_THAT(Train(job, 2, 100, "never", {4, 2}),
              IsError(ErrorKind::kTempFail, "inside update 4 after micro-step 2 of 4",
                      "which is to be repeated (nothing of it is saved), saved"));
  const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
  EXPECT_EQ(resumed.first, 3);
  EXPECT_EQ(resumed.weights, plain.weights);
}

TEST_F(AnySplitTrainingTest, DoesNotContinueInsideAnUpdateOfOtherBits) {
  Job job = SmallJob();
  EXPECT_THAT(Train(job, 3, 1, "never", {4, 1}), IsError(ErrorKind::kTempFail, "inside update 4"));
  job.batch.bits = Bits::kAnySplit;
  const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
  EXPECT_EQ(resumed.first, 3);
  EXPECT_EQ(resumed.weights, ValueOrThrow(Train(job, 3, 0, CheckpointPath(3))).weights);
}

// The micro-batch is free to change, but the bits depend on it.
TEST_F(AnySplitTrainingTest, WarnsOfOtherMicroBatchesAfterResume) {
  Job job = AnySplitJob();
  ASSERT_OK(Train(job, 2, 10, "never"));
  EXPECT_THAT(ValueOrThrow(Train(job, 3, 0, CheckpointPath(10))).warnings,
              Not(HasSubstr("--bits=any-split")));
  job.batch.micro = 8;
  EXPECT_THAT(ValueOrThrow(Train(job, 3, 0, CheckpointPath(10))).warnings,
              HasSubstr("--bits=any-split: micro-batches of at most 8 samples from here on, before "
                        "the resume of at most 5 samples"));
  job.batch.bits = Bits::kThisSplit;
  EXPECT_THAT(ValueOrThrow(Train(job, 3, 0, CheckpointPath(10))).warnings,
              Not(HasSubstr("--bits=any-split: micro")));
}

TEST_F(AnySplitTrainingTest, RefusesWhatDependsOnRanks) {
  const auto expect_refused = [this](const auto& change, const char* what) {
    Job job = AnySplitJob();
    change(job);
    EXPECT_THAT(Train(job, 2, 0, "never"), IsError(ErrorKind::kConfig, "--bits=any-split", what));
  };
  expect_refused([](Job& job) { job.batch.rounding = Rounding::kCeil; }, "--rounding=exact");
  expect_refused([](Job& job) { job.shard = Sharding::kOptimizer; }, "a sharded optimiser");
  expect_refused([](Job& job) { job.noise_scale_every = 1; }, "noise_scale_every");
  expect_refused([](Job& job) { job.pipeline.stages = 2; }, "pipelines");
  speeds_ = {1, 0.5};
  expect_refused([](Job&) {}, "speeds");
}

}  // namespace
}  // namespace gaccd
