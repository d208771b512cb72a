// A training on GPUs, over the stand-ins, that continues from a checkpoint ends with the same bits
// as one that was never stopped, wherever it was saved: the host is one update ahead of the device.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

constexpr int kRanks = 2;  // with 4 micro-steps in an update
constexpr std::int64_t kUpdates = 11;

class CudaResumeTest : public ResumeTest, public ::testing::WithParamInterface<Precision> {
 protected:
  Status RunRanks(int ranks, const RankBody& body) override { return RunOnGpus(ranks, body); }

  // No evaluation, so that nothing waits for the device but saves and stops.
  static Job JobInPrecision() {
    Job job = SmallJob();
    job.data.eval.reset();
    job.max_updates = kUpdates;
    job.precision = GetParam();
    job.loss_scale = {.init_scale = 1024, .growth_interval = 4};  // of fp16
    return job;
  }

  // From the checkpoint that `from` names, after `first` updates.
  void ExpectSameEnd(const Job& job, const Trained& plain, const std::string& from,
                     std::int64_t first) {
    const auto resumed = ValueOrThrow(Train(job, kRanks, 0, from));
    EXPECT_EQ(resumed.first, first);
    EXPECT_EQ(resumed.summary.updates, kUpdates);
    EXPECT_EQ(resumed.summary.samples, plain.summary.samples);
    EXPECT_EQ(resumed.weights, plain.weights) << "from update " << first;
    EXPECT_EQ(resumed.steps,
              std::vector<std::string>(plain.steps.begin() + first, plain.steps.end()));
  }
};

INSTANTIATE_TEST_SUITE_P(All, CudaResumeTest, ::testing::Values(Precision::kF32, Precision::kFP16));

TEST_P(CudaResumeTest, IsBitIdenticalFromEveryCheckpoint) {
  const Job job = JobInPrecision();
  const auto plain = ValueOrThrow(Train(job, kRanks, 0, "never"));
  const auto whole = ValueOrThrow(Train(job, kRanks, 3, "never"));
  EXPECT_EQ(whole.weights, plain.weights);
  for (const std::int64_t step : {3, 6, 11}) ExpectSameEnd(job, plain, CheckpointPath(step), step);
}

TEST_P(CudaResumeTest, IsBitIdenticalAfterAnyStop) {
  const Job job = JobInPrecision();
  const auto plain = ValueOrThrow(Train(job, kRanks, 0, "never"));
  for (const Place& stop :
       {Place{.update = 4, .done = 2}, Place{.update = 6, .done = 1, .at_boundary = true}}) {
    std::filesystem::remove_all(ckpt());
    ASSERT_THAT(Train(job, kRanks, 100, "never", stop), HasKind(ErrorKind::kTempFail));
    ExpectSameEnd(job, plain, "auto", stop.at_boundary ? stop.update : stop.update - 1);
  }
}

}  // namespace
}  // namespace gaccd::tests
