// Trainings in pipelines on GPUs, over the stand-ins: saved, continued by other pipelines, without
// one, on CPUs, and the other way round; their evaluations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "daemon/config/job_text.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/sanitized.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

class CudaPipelineResumeTest : public ResumeTest {
 protected:
  Status RunRanks(int ranks, const RankBody& body) override {
    return gpus_ ? RunOnGpus(ranks, body) : ResumeTest::RunRanks(ranks, body);
  }
  Trained OnGpus(const Job& job, int ranks, std::int64_t every, const std::string& from) {
    gpus_ = true;
    return ValueOrThrow(Train(job, ranks, every, from));
  }
  Trained OnCpus(const Job& job, int ranks, std::int64_t every, const std::string& from) {
    gpus_ = false;
    return ValueOrThrow(Train(job, ranks, every, from));
  }
  static Job MakeJob(std::int64_t stages, PipelineSchedule schedule = PipelineSchedule::kOneFOneB) {
    Job job = SmallJob();
    job.optimizer.ema = EmaSpec{0.75};
    job.clip_norm = 0.1;
    job.evaluation.every_updates = 5;
    job.pipeline = {.stages = stages, .schedule = schedule};
    return job;
  }
  static void ExpectNear(const Trained& found, const Trained& expected) {
    EXPECT_LT(Distance(found.weights, expected.weights), 1e-6);
    EXPECT_LT(Distance(found.averaged, expected.averaged), 1e-6);
    EXPECT_EQ(found.summary.samples, expected.summary.samples);
  }

  bool gpus_ = true;
};

TEST_F(CudaPipelineResumeTest, AnyPipelineResumesAnyOther) {
  guards_.digest_every = 1;
  const Trained whole = OnGpus(MakeJob(1), 2, 0, "never");
  ExpectNear(whole, OnCpus(MakeJob(1), 2, 0, "never"));
  const Trained pipelined = OnGpus(MakeJob(2), 4, 8, "never");
  ExpectNear(pipelined, whole);
  EXPECT_EQ(pipelined.evals.size(), whole.evals.size());
  const std::string saved = CheckpointPath(8);
  ExpectNear(OnGpus(MakeJob(3, PipelineSchedule::kZeroBubble), 3, 0, saved), whole);
  ExpectNear(OnGpus(MakeJob(1), 1, 0, saved), whole);
  ExpectNear(OnCpus(MakeJob(1), 3, 0, saved), whole);
  ExpectNear(OnCpus(MakeJob(2), 2, 0, saved), whole);
  std::filesystem::remove_all(ckpt());
  (void)OnCpus(MakeJob(1), 2, 8, "never");
  ExpectNear(OnGpus(MakeJob(2, PipelineSchedule::kGpipe), 4, 0, CheckpointPath(8)), whole);
}

// Saved by stages that divide their state, and continued by some; on the other device, too.
TEST_F(CudaPipelineResumeTest, ShardedStagesResumeAnyOther) {
  guards_.digest_every = 1;
  const Trained whole = OnGpus(MakeJob(1), 2, 0, "never");
  Job sharded = MakeJob(2);
  sharded.shard = Sharding::kOptimizer;
  ExpectNear(OnGpus(sharded, 6, 8, "never"), whole);
  const std::string saved = CheckpointPath(8);
  sharded.shard = Sharding::kNode;
  ExpectNear(OnGpus(sharded, 4, 0, saved), whole);
  ExpectNear(OnCpus(sharded, 4, 0, saved), whole);
  ExpectNear(OnGpus(MakeJob(1), 1, 0, saved), whole);
  std::filesystem::remove_all(ckpt());
  (void)OnCpus(MakeJob(1), 2, 8, "never");
  ExpectNear(OnGpus(sharded, 4, 0, CheckpointPath(8)), whole);
}

// The output of a GPT has the weights of its embedding: its first and last stages share them.
TEST_F(CudaPipelineResumeTest, UndividedModelsContinuePipelinedGpt) {
  Job whole = ValueOrThrow(LoadJob(GACCD_GOLDEN_DIR "/models/gpt_mini.txtpb"));
  whole.batch.micro = 2;
  Job staged = whole;
  staged.pipeline = {.stages = 3, .schedule = PipelineSchedule::kZeroBubble};
  const Trained expected = OnCpus(whole, 1, 0, "never");
  const Trained found = OnGpus(staged, 6, 8, "never");
  ExpectNear(found, expected);
  if (kSanitized) return;  // the rest is the same code
  ExpectNear(OnGpus(whole, 2, 0, CheckpointPath(8)), found);
  staged.pipeline = {.stages = 2};
  ExpectNear(OnGpus(staged, 2, 0, CheckpointPath(8)), found);
}

TEST_F(CudaPipelineResumeTest, RefusesIndivisibleModels) {
  Job job = MakeJob(2);
  gpus_ = true;
  EXPECT_THAT(Train(job, 3, 0, "never"), HasKind(ErrorKind::kConfig));  // no multiple
}

}  // namespace
}  // namespace gaccd::tests
