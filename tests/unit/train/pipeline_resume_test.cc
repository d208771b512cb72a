// Trainings in pipelines: saved, continued by other pipelines and without one, and back;
// evaluations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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
  static Job JobOf(std::int64_t stages) {
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
    ASSERT_EQ(found.steps.size(), expected.steps.size());
  }
};

TEST_F(PipelineResumeTest, AnyPipelineContinuesAnyOther) {
  const auto whole = ValueOrThrow(Train(JobOf(1), 2, 0, "never"));
  const auto pipelined = ValueOrThrow(Train(JobOf(2), 6, 8, "never"));
  ExpectNear(pipelined, whole);
  EXPECT_EQ(pipelined.evals.size(), whole.evals.size());
  const std::string there = PathOf(8);
  for (const auto& [stages, ranks] :
       std::vector<std::pair<std::int64_t, int>>{{2, 6}, {1, 1}, {1, 4}, {3, 3}, {2, 2}, {3, 6}}) {
    SCOPED_TRACE(StrCat(stages, " stages on ", ranks, " ranks"));
    const auto resumed = ValueOrThrow(Train(JobOf(stages), ranks, 0, there));
    EXPECT_EQ(resumed.first, 8);
    EXPECT_LT(tests::Distance(resumed.weights, whole.weights), 1e-6);
    EXPECT_LT(tests::Distance(resumed.averaged, whole.averaged), 1e-6);
  }
}

TEST_F(PipelineResumeTest, RefusesWhatItCannotDivide) {
  Job job = JobOf(2);
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

}  // namespace
}  // namespace gaccd
