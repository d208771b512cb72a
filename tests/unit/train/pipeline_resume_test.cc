// Trainings in pipelines: saved, continued by other pipelines and without one, and back;
// evaluations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/config/job_text.h"
#include "daemon/selftest/selftest_job.h"
#include "tests/support/engine_runs.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using tests::ResumeTest;
using tests::SmallJob;

class PipelineResumeTest : public ResumeTest {
 protected:
  static Job MakeJob(std::int64_t stages) {
    Job job = SmallJob();
    job.optimizer.ema = EmaSpec{0.75};
    job.clip_norm = 0.1;
    job.evaluation.every_updates = 5;
    job.pipeline.stages = stages;
    return job;
  }
  static void ExpectNear(const Trained& found, const Trained& expected) {
    EXPECT_LT(tests::Distance(found.weights, expected.weights), 1e-6);
    EXPECT_LT(tests::Distance(found.averaged, expected.averaged), 1e-6);
    EXPECT_EQ(found.summary.samples, expected.summary.samples);
  }
};

TEST_F(PipelineResumeTest, AnyPipelineResumesAnyOther) {
  const auto whole = ValueOrThrow(Train(MakeJob(1), 2, 0, "never"));
  const auto pipelined = ValueOrThrow(Train(MakeJob(2), 6, 8, "never"));
  ExpectNear(pipelined, whole);
  EXPECT_EQ(pipelined.evals.size(), whole.evals.size());
  const std::string there = CheckpointPath(8);
  for (const auto& [stages, ranks] :
       std::vector<std::pair<std::int64_t, int>>{{2, 6}, {1, 1}, {1, 4}, {3, 3}, {2, 2}, {3, 6}}) {
    SCOPED_TRACE(StrCat(stages, " stages on ", ranks, " ranks"));
    const auto resumed = ValueOrThrow(Train(MakeJob(stages), ranks, 0, there));
    EXPECT_EQ(resumed.first, 8);
    EXPECT_LT(tests::Distance(resumed.weights, whole.weights), 1e-6);
    EXPECT_LT(tests::Distance(resumed.averaged, whole.averaged), 1e-6);
  }
}

// A GPT with tied weights in 2 pipelines of 3 stages, each state divided: continued by 4 ranks with
// the whole model, and the other way round.
TEST_F(PipelineResumeTest, UndividedModelsContinueShardedPipeline) {
  Job plain = ValueOrThrow(LoadJob(GACCD_GOLDEN_DIR "/models/gpt_mini.txtpb"));
  plain.batch.micro = 2;
  Job sharded = plain;
  sharded.pipeline.stages = 3;
  sharded.shard = Sharding::kNode;
  const auto whole = ValueOrThrow(Train(plain, 1, 0, "never"));
  const auto divided = ValueOrThrow(Train(sharded, 6, 8, "never"));
  ExpectNear(divided, whole);
  const std::string of_divided = CheckpointPath(8);
  ExpectNear(ValueOrThrow(Train(plain, 4, 0, of_divided)), divided);
  std::filesystem::remove_all(ckpt());
  ValueOrThrow(Train(plain, 4, 8, "never"));
  ExpectNear(ValueOrThrow(Train(sharded, 6, 0, CheckpointPath(8))), divided);
}

TEST_F(PipelineResumeTest, RefusesIndivisibleModels) {
  Job job = MakeJob(2);
  const auto kind = [&](int ranks) { return Train(job, ranks, 0, "never").status(); };
  EXPECT_THAT(kind(3), HasKind(ErrorKind::kConfig));  // no multiple
  job.pipeline.stages = 40;
  EXPECT_THAT(kind(40), HasKind(ErrorKind::kConfig));  // more than blocks
  job.pipeline = {.stages = 2, .blocks = {1, 1}};
  EXPECT_THAT(kind(2), HasKind(ErrorKind::kConfig));  // not all blocks
  job.pipeline = {.stages = 2};
  job.model.layer.insert(job.model.layer.begin() + 1, {"norm", BatchNormSpec{32}});
  EXPECT_THAT(kind(2), HasKind(ErrorKind::kConfig));  // statistics of the update
}

// The output of gpt_mini has the weights of its embedding: stages share them.
TEST(PipelineSelftest, PassesAndDetectsMistakes) {
  Job job = ValueOrThrow(LoadJob(GACCD_GOLDEN_DIR "/models/gpt_mini.txtpb"));
  job.pipeline.stages = 2;
  const auto of = [&](std::int64_t ranks, std::int64_t micro) {
    return ValueOrThrow(RunJobSelftest(job, {.nodes = 1,
                                             .gpus_per_node = ranks,
                                             .micro_batch = micro,
                                             .target_batch = 8,
                                             .stages = 2}));
  };
  for (const PipelineSchedule schedule :
       {PipelineSchedule::kGpipe, PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble}) {
    job.pipeline.schedule = schedule;
    const JobSelftest test = of(6, 1);  // 3 + 3 + 2 samples
    EXPECT_TRUE(test.passed()) << JobSelftestText(test);
    ASSERT_EQ(test.mistakes.size(), 4);
    for (const JobSelftest::Mistake& mistake : test.mistakes) {
      EXPECT_TRUE(mistake.has_effect) << mistake.name;
      EXPECT_GT(mistake.deviation, 1e-3) << mistake.name;
    }
  }
  job.shard = Sharding::kOptimizer;
  const JobSelftest sharded = of(6, 1);
  EXPECT_TRUE(sharded.passed()) << JobSelftestText(sharded);
  EXPECT_EQ(std::ranges::count(sharded.mistakes, true, &JobSelftest::Mistake::has_effect), 4);
  job.shard = Sharding::kNone;
  const JobSelftest one = of(2, 8);  // one pipeline, one micro-batch
  EXPECT_TRUE(one.passed()) << JobSelftestText(one);
  const auto effects = std::ranges::count(one.mistakes, true, &JobSelftest::Mistake::has_effect);
  EXPECT_EQ(effects, 1) << "the shared weights";
}

}  // namespace
}  // namespace gaccd
