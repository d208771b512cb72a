// Trainings whose effective batch changes: the same on any ranks, exact in every update, and
// continued in any stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/config/job_text.h"
#include "daemon/launch/launch.h"
#include "daemon/selftest/selftest_job.h"
#include "daemon/train/update.h"
#include "tests/support/engine_runs.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using tests::ResumeTest;
using tests::SmallJob;

class TargetScheduleTest : public ResumeTest {
 protected:
  static Job ChangingJob() {
    Job job = SmallJob();
    job.batch.target.reset();
    job.batch.lr_rule = LrRule::kLinear;
    job.batch.target_schedule =
        TargetScheduleSpec{.stage = {{.at_update = 0, .at_samples = {}, .target = 13},
                                     {.at_update = {}, .at_samples = 100, .target = 32},
                                     {.at_update = 17, .at_samples = {}, .target = 21}}};
    return job;
  }
};

TEST_F(TargetScheduleTest, IsSameOnAnyRanks) {
  const auto alone = ValueOrThrow(Train(ChangingJob(), 1, 0, "never"));
  for (const int ranks : {3, 5, 14}) {  // of 13 samples one of 14 ranks has none
    SCOPED_TRACE(ranks);
    const auto run = ValueOrThrow(Train(ChangingJob(), ranks, 0, "never"));
    EXPECT_LT(tests::Distance(run.weights, alone.weights), 1e-6);
    EXPECT_EQ(run.summary.samples, alone.summary.samples);
    EXPECT_EQ(run.steps.size(), alone.steps.size());
  }
  // Without the change, or with another rate, it would be another training.
  Job same = ChangingJob();
  same.batch.target_schedule->stage.resize(1);
  same.max_updates = static_cast<std::int64_t>(alone.steps.size());
  same.epochs = 0;
  EXPECT_GT(tests::Distance(ValueOrThrow(Train(same, 3, 0, "never")).weights, alone.weights), 1e-4);
  Job unscaled = ChangingJob();
  unscaled.batch.lr_rule = LrRule::kNone;
  EXPECT_GT(tests::Distance(ValueOrThrow(Train(unscaled, 3, 0, "never")).weights, alone.weights),
            1e-4);
}

TEST_F(TargetScheduleTest, ContinuesInEveryStage) {
  keep_ = 10;
  const auto whole = ValueOrThrow(Train(ChangingJob(), 5, 4, "never"));
  EXPECT_EQ(whole.targets, (std::vector<std::string>{"8", "17"}));
  for (const std::int64_t step : {4, 8, 12, 16, 20}) {
    for (const int ranks : {5, 2}) {
      SCOPED_TRACE(StrCat("from update ", step, " on ", ranks, " ranks"));
      const auto rest = ValueOrThrow(Train(ChangingJob(), ranks, 0, CheckpointPath(step)));
      EXPECT_EQ(rest.first, step);
      EXPECT_LT(tests::Distance(rest.weights, whole.weights), 1e-6);
      EXPECT_EQ(rest.targets, step < 17 ? whole.targets : std::vector<std::string>{"17"})
          << "also that of the stage in which it resumes";
    }
  }
}

// Of the same size, the next update would take other samples.
TEST_F(TargetScheduleTest, RefusesCheckpointWithOtherSamples) {
  ASSERT_TRUE(Train(ChangingJob(), 2, 20, "never").ok());
  Job earlier = ChangingJob();
  earlier.batch.target_schedule->stage[2].at_update = 15;
  EXPECT_THAT(Train(earlier, 2, 0, CheckpointPath(20)),
              IsError(ErrorKind::kConfig, "update 20 took 21 samples after"));
  // On more ranks a stage that is rounded down to whole micro-batches has another batch.
  Job floor = ChangingJob();
  floor.batch.rounding = Rounding::kFloor;
  floor.batch.target_schedule->stage = {{.at_update = 0, .at_samples = {}, .target = 30},
                                        {.at_update = 2, .at_samples = {}, .target = 35}};
  std::filesystem::remove_all(ckpt());
  ASSERT_TRUE(Train(floor, 1, 6, "never").ok());
  EXPECT_THAT(Train(floor, 3, 0, CheckpointPath(6)),
              IsError(ErrorKind::kConfig, "update 6 took 35"));
}

TEST_F(TargetScheduleTest, RateFollowsBatchAndSamples) {
  const Job job = ChangingJob();
  const Plan plan = ValueOrThrow(tests::MakePlan(job, 3));
  const UpdateSchedule schedule = ValueOrThrow(MakeUpdateSchedule(job, plan, 230));
  ASSERT_EQ(schedule.stages().size(), 3);
  EXPECT_DOUBLE_EQ(JobLearningRate(job, plan, schedule, 0), job.optimizer.lr / 4);  // warm-up
  const std::int64_t second = schedule.stages()[1].first_update;
  const double before = JobLearningRate(job, plan, schedule, second - 1);
  const double after = JobLearningRate(job, plan, schedule, second);
  EXPECT_NEAR(after / before, 32.0 / 13, 0.3);
  const double last = JobLearningRate(job, plan, schedule, schedule.updates() - 1);
  EXPECT_NEAR(last, job.optimizer.lr * 21 / 13 * 0.1, 1e-12);
}

// After one update its time is all that is known.
TEST_F(TargetScheduleTest, TimeLeftFollowsSamplesLeft) {
  const auto run = ValueOrThrow(Train(ChangingJob(), 1, 0, "never"));
  const std::string run_dir = StrCat(folder_, "/run-0");
  const auto first = [&](const char* key) {
    return std::stod(tests::StepValues(run_dir, key).front());
  };
  const double left = static_cast<double>(run.summary.samples - 13);
  EXPECT_NEAR(first("eta_s"), first("dur_s") / 13 * left, 1e-6);
}

TEST_F(TargetScheduleTest, StrictRefusesInexactStage) {
  Job job = ChangingJob();
  job.batch.rounding = Rounding::kFloor;
  job.batch.micro = 1;
  Flags flags;
  flags.strict = true;
  const auto plan = [&](std::int64_t last) {
    job.batch.target_schedule->stage = {{.at_update = 0, .at_samples = {}, .target = 12},
                                        {.at_update = 2, .at_samples = {}, .target = last}};
    return RunThreadRanks(
        3, {}, [&](Communicator& comm) { return PlanForWorld(job, flags, comm).status(); });
  };
  EXPECT_OK(plan(30));
  EXPECT_THAT(plan(32), IsError(ErrorKind::kConfig, "30 for the target 32"));
}

TEST(TargetScheduleJobTest, RefusesUnorderedStages) {
  const auto parse = [](const std::string& batch) {
    return ParseJobText(
               "name: 'x' model { mlp { widths: [4, 2] } loss { mean_squared_error {} } } data { "
               "train { synthetic { samples: 64 features: 4 outputs: 2 } } } optimizer { lr: 0.1 "
               "sgd {} } epochs: 1 batch { " +
                   batch + " }",
               "job")
        .status();
  };
  const auto schedule = [&](const std::string& stages) {
    return parse("target_schedule { " + stages + " }");
  };
  const auto refuses = [](const char* why) { return IsError(ErrorKind::kConfig, why); };
  const std::string first = "stage { at_update: 0 target: 4 } ";
  EXPECT_OK(
      schedule(first + "stage { at_samples: 50 target: 9 } stage { at_update: 40 target: 8 }"));
  EXPECT_THAT(parse("target: 4 target_schedule { " + first + "}"),
              refuses("found both, the target"));
  EXPECT_THAT(schedule("stage { at_update: 1 target: 4 }"), refuses("begins at 0, found 1"));
  EXPECT_THAT(schedule("stage { target: 4 }"), refuses("at_samples, found none"));
  EXPECT_THAT(schedule("stage { at_update: 0 at_samples: 0 target: 4 }"),
              refuses("at_samples, found both"));
  EXPECT_THAT(schedule("stage { at_update: 0 target: 0 }"), refuses("target"));
  EXPECT_THAT(schedule(first + "stage { at_samples: 50 target: 9 } "
                               "stage { at_samples: 50 target: 8 }"),
              refuses("expected more than 50, found 50"));
}

}  // namespace
}  // namespace gaccd
