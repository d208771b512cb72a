// Trainings with batch norms over the whole update: checkpoints, stops inside an update, averages
// of the weights, updates that are not finite. Values against PyTorch: tests/golden/train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/support/engine_runs.h"
#include "tests/support/file_util.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;
using tests::Distance;
using tests::ResumeTest;
using tests::SmallJob;

// 3 ranks take 32 samples in 3 micro-steps, the last update of an epoch 6 samples in 1; 2 sums over
// the update, so 3 passes.
Job NormJob() {
  Job job = SmallJob();
  // A bias before a batch norm has the gradient 0, and AdamW moves by the sign of its rounding.
  job.model.layer[0].kind = LinearSpec{10, 16, false};
  job.model.layer.insert(job.model.layer.begin() + 1, {"bn", BatchNormSpec{.num_features = 16}});
  return job;
}

class BatchNormTrainingTest : public ResumeTest {
 protected:
  static std::vector<float> ParameterValues(std::span<const float> parameters,
                                            std::string_view name) {
    const Model model = ValueOrThrow(Model::Make(NormJob().model, TargetSample({10}, 2)));
    const FlatEntry& entry = *model.layout().Find(name);
    const auto values = parameters.subspan(static_cast<std::size_t>(entry.offset),
                                           static_cast<std::size_t>(entry.elements));
    return {values.begin(), values.end()};
  }
  // Other ranks add in another order.
  static void ExpectNear(std::span<const float> found, std::span<const float> expected) {
    EXPECT_LT(Distance(found, expected), 1e-5);
    for (const char* name : {"bn.running_mean", "bn.running_var", "bn.weight"}) {
      EXPECT_LT(Distance(ParameterValues(found, name), ParameterValues(expected, name)), 1e-5)
          << name;
    }
    EXPECT_EQ(ParameterValues(found, "bn.num_batches_tracked"),
              ParameterValues(expected, "bn.num_batches_tracked"));
  }
};

TEST_F(BatchNormTrainingTest, ResumeEqualsUninterruptedRun) {
  const Job job = NormJob();
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  EXPECT_EQ(ParameterValues(plain.weights, "bn.num_batches_tracked"), std::vector<float>{24});
  EXPECT_EQ(ValueOrThrow(Train(job, 3, 10, "never")).weights, plain.weights);
  const auto resumed = ValueOrThrow(Train(job, 3, 0, CheckpointPath(10)));
  EXPECT_EQ(resumed.first, 10);
  EXPECT_EQ(resumed.weights, plain.weights);
  EXPECT_EQ(resumed.evals.back(), plain.evals.back());
  for (const int ranks : {2, 7}) {
    SCOPED_TRACE(ranks);
    ExpectNear(ValueOrThrow(Train(job, ranks, 0, CheckpointPath(10))).weights, plain.weights);
  }
}

TEST_F(BatchNormTrainingTest, InterruptedUpdateIsRepeated) {
  const Job job = NormJob();
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  // After the forward sum, behind it, and in the last pass.
  const std::pair<int, const char*> places[] = {{4, "after pass 1 of 3"},
                                                {5, "after micro-step 1 of 3 in pass 2 of 3"},
                                                {10, "after micro-step 2 of 3 in pass 3 of 3"}};
  for (const auto& [position, text] : places) {
    SCOPED_TRACE(text);
    std::filesystem::remove_all(ckpt());
    EXPECT_THAT(Train(job, 3, 100, "never", {4, position}),
                IsError(ErrorKind::kTempFail, StrCat("inside update 4 ", text,
                                                     ", which is to be repeated (nothing of it is "
                                                     "saved), saved")));
    const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
    EXPECT_EQ(resumed.first, 3);
    EXPECT_EQ(resumed.weights, plain.weights);
  }
  ExpectNear(ValueOrThrow(Train(job, 2, 0, "auto")).weights, plain.weights);
}

// As with PyTorch's AveragedModel: evaluations have averaged weights and these statistics.
TEST_F(BatchNormTrainingTest, RunningStatisticsAreNotAveraged) {
  Job job = NormJob();
  job.optimizer.ema = EmaSpec{0.75};
  const auto found = ValueOrThrow(Train(job, 3, 0, "never"));
  for (const char* name : {"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}) {
    EXPECT_EQ(ParameterValues(found.averaged, name), ParameterValues(found.weights, name)) << name;
  }
  for (const char* name : {"bn.weight", "bn.bias", "fc1.weight"}) {
    EXPECT_NE(ParameterValues(found.averaged, name), ParameterValues(found.weights, name)) << name;
  }
  job.optimizer.ema.reset();
  EXPECT_EQ(ValueOrThrow(Train(job, 3, 0, "never")).weights, found.weights);
}

// The others train as if the samples of that update were not there.
TEST_F(BatchNormTrainingTest, NonFiniteUpdateKeepsRunningStatisticsOnAllRanks) {
  constexpr std::int64_t kUpdates = 4, kBatch = 11;
  const auto job_with = [&](std::optional<float> bad) {
    std::vector<float> features, targets;
    for (std::int64_t s = 0; s < kUpdates * kBatch; ++s) {
      if (!bad && s / kBatch == 2) continue;
      for (std::int64_t f = 0; f < 10; ++f) {
        const float value = std::sin(static_cast<float>(s * 10 + f));
        features.push_back(s == 26 && bad ? *bad * (value + 2) : value);
      }
      for (std::int64_t t = 0; t < 2; ++t) {
        targets.push_back(std::cos(static_cast<float>(3 * s + t)));
      }
    }
    Job job = NormJob();
    job.model.layer.erase(job.model.layer.begin() + 3);  // dropout knows its update
    job.data = {.train = NpySpec{.features = temp_.Write("f", NpyFloats(features, 10)),
                                 .targets = temp_.Write("t", NpyFloats(targets, 2))},
                .eval = {},
                .shuffle = false};
    job.batch.target = kBatch;
    job.batch.micro = 2;
    job.optimizer = {.lr = 0.1, .kind = SgdSpec{.momentum = 0.9}};
    job.schedule = {};
    job.epochs = 1;
    return job;
  };
  // Variances that float32 does not hold; of the second also a loss.
  for (const float bad : {1e30F, 1e38F}) {
    for (const int ranks : {1, 3}) {
      SCOPED_TRACE(ranks);
      const auto train = [&](const Job& job) {
        return tests::Train(job,
                            {.ranks = ranks, .guards = {.on_nonfinite = OnNonfinite::kSkipUpdate}});
      };
      const auto found = train(job_with(bad));
      const auto without = train(job_with(std::nullopt));
      for (std::size_t r = 0; r < found.weights.size(); ++r) {
        ASSERT_OK(found.status[r]);
        EXPECT_EQ(found.summary[r].skipped, 1);
        EXPECT_EQ(found.weights[r], without.weights[0]) << "rank " << r;
      }
      const Model model = ValueOrThrow(Model::Make(job_with(bad).model, TargetSample({10}, 2)));
      const FlatEntry& updates = *model.layout().Find("bn.num_batches_tracked");
      EXPECT_EQ(found.weights[0][static_cast<std::size_t>(updates.offset)], kUpdates - 1);
    }
  }
}

}  // namespace
}  // namespace gaccd
