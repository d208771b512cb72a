// When a training evaluates, which evaluation is its best, and what follows from that.
#include "daemon/eval/best_evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <vector>

#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::Field;
using BestEvaluationRunTest = tests::ResumeTest;
using tests::SmallJob;

using Values = std::vector<std::pair<std::int64_t, double>>;  // update and value

TEST(BestEvaluationTest, IsFirstOfEqualValues) {
  BestEvaluation loss({.metric = "loss"}, Better::kSmaller);
  loss.Record(2, NAN);
  EXPECT_FALSE(loss.best());
  for (const auto& [step, value] : Values{{4, 0.5}, {6, 0.25}, {8, 0.25}, {9, 0.375}}) {
    loss.Record(step, value);
  }
  loss.Record(9, 0);  // again
  EXPECT_EQ(loss.state(),
            (BestSoFar{.evaluated = 9, .step = 6, .value = 0.25, .reference = 0.25, .waited = 2}));
  BestEvaluation accuracy({.metric = "accuracy"}, Better::kLarger);
  accuracy.Restore(loss.state(), {.metric = "loss"});
  EXPECT_EQ(accuracy.state(), BestSoFar{}) << "of another metric";
  for (const auto& [step, value] : Values{{4, 0.25}, {6, 0.5}, {8, 0.375}}) {
    accuracy.Record(step, value);
  }
  EXPECT_EQ(accuracy.best()->step, 6);
  BestEvaluation resumed({.metric = "accuracy"}, Better::kLarger);
  resumed.Restore(accuracy.state(), {.metric = "accuracy"});
  EXPECT_EQ(resumed.state(), accuracy.state());
}

// Small changes count together: 0.625 is better than 1 by more than 0.25, what is between is not.
TEST(BestEvaluationTest, PatienceRequiresMinChange) {
  BestEvaluation loss({.metric = "loss", .patience = 3, .least_change = 0.25}, Better::kSmaller);
  std::int64_t step = 0;
  for (const double value : {1.0, 0.875, 0.75, 0.625, 0.5, 0.5}) {
    loss.Record(++step, value);
    EXPECT_FALSE(loss.patience_is_over()) << step;
  }
  loss.Record(++step, NAN);
  EXPECT_TRUE(loss.patience_is_over());
  EXPECT_EQ(loss.StopReason(), "stopped early: no better loss for 3 evaluations");
  EXPECT_EQ(loss.best()->step, 5) << "the best need not be better by so much";
  EXPECT_FALSE(PatienceIsOver({.patience = 4}, loss.state()));
  EXPECT_FALSE(PatienceIsOver({.patience = 0}, loss.state()));
}

// 0.5 is not better than 0.625, though by less than 0.25 worse.
TEST(BestEvaluationTest, LargerValueMustBeLargerByMinChange) {
  BestEvaluation accuracy({.metric = "accuracy", .patience = 2, .least_change = 0.25},
                          Better::kLarger);
  std::int64_t step = 0;
  for (const double value : {0.25, 0.5, 0.625, 0.5}) {
    accuracy.Record(++step, value);
    EXPECT_FALSE(accuracy.patience_is_over()) << step;
  }
  accuracy.Record(++step, 0.75);
  EXPECT_TRUE(accuracy.patience_is_over());
  EXPECT_EQ(accuracy.best()->step, 5);
}

// 3 epochs of 8 updates. What was evaluated before the checkpoint is not evaluated anew.
TEST_F(BestEvaluationRunTest, EvaluatesEveryNUpdates) {
  Job job = SmallJob();
  job.evaluation.every_updates = 3;
  const auto whole = ValueOrThrow(Train(job, 3, 5, "never"));
  std::vector<std::string> steps;
  for (const std::string& eval : whole.evals) steps.push_back(eval.substr(0, eval.find(' ')));
  EXPECT_THAT(steps, ElementsAre("3", "6", "8", "9", "12", "15", "16", "18", "21", "24"));
  for (const auto& [from, done] : {std::pair(10, 4), std::pair(15, 6)}) {
    const auto resumed = ValueOrThrow(Train(job, 3, 0, CheckpointPath(from)));
    EXPECT_EQ(resumed.evals,
              std::vector<std::string>(whole.evals.begin() + done, whole.evals.end()));
  }
}

// Steps that are too large: the loss goes up again.
Job JobThatGoesUpAgain() {
  Job job = SmallJob();
  job.optimizer = {.lr = 0.6, .kind = AdamWSpec{}};
  job.schedule = {};
  return job;
}

TEST_F(BestEvaluationRunTest, EarlyStopIsAtSameUpdateFromAnyCheckpoint) {
  Job job = JobThatGoesUpAgain();
  job.evaluation = {.every_updates = 1, .patience = 3};
  const auto whole = ValueOrThrow(Train(job, 3, 1, "never"));
  EXPECT_EQ(whole.summary.stopped_early, "stopped early: no better loss for 3 evaluations");
  const std::int64_t end = whole.summary.updates;
  ASSERT_LT(end, 24);
  EXPECT_EQ(whole.summary.best->step, end - 3);
  for (const std::int64_t step : {end - 4, end - 2, end - 1, end}) {
    const auto resumed = ValueOrThrow(Train(job, 3, 0, CheckpointPath(step)));
    EXPECT_EQ(resumed.summary.updates, end) << "from update " << step;
    EXPECT_EQ(resumed.summary.best->step, end - 3);
    EXPECT_EQ(std::ssize(resumed.steps), end - step);
    EXPECT_EQ(resumed.weights, whole.weights);
    const bool says =
        resumed.summary.stopped_early.find("raise evaluation.patience") != std::string::npos;
    EXPECT_EQ(says, step == end) << "where nothing is trained: " << resumed.summary.stopped_early;
  }
  job.evaluation.patience = 0;
  EXPECT_EQ(Train(job, 3, 0, CheckpointPath(end))->summary.updates, 24) << "when it is asked to";
  job.evaluation.patience = 3;
  std::filesystem::remove_all(ckpt());
  EXPECT_OK(Train(job, 3, 100, "never"));
  EXPECT_TRUE(std::filesystem::exists(CheckpointPath(end))) << "the end, though no save was due";
}

// mse by evaluation.metric is better when it is smaller, r2 when it is larger: of the same
// evaluations.
TEST_F(BestEvaluationRunTest, DirectionFollowsMetric) {
  Job job = JobThatGoesUpAgain();
  job.metric = {MseSpec{}, R2Spec{}};
  job.evaluation = {.every_updates = 1, .metric = "mse"};
  const auto by_error = ValueOrThrow(Train(job, 1, 0, "never"));
  job.evaluation.metric = "r2";
  const auto by_r2 = ValueOrThrow(Train(job, 1, 0, "never"));
  EXPECT_EQ(by_r2.summary.best->metric, "r2");
  EXPECT_LT(by_r2.summary.best->step, 24);
  EXPECT_NEAR(static_cast<double>(by_r2.summary.best->step),
              static_cast<double>(by_error.summary.best->step), 2);
}

// No checkpoint is due where the best one is.
TEST_F(BestEvaluationRunTest, KeepsCheckpointOfBestEvaluation) {
  Job job = JobThatGoesUpAgain();
  job.evaluation = {.every_updates = 1, .metric = "mse", .keep_best = true};
  job.metric = {MseSpec{}};
  const auto whole = ValueOrThrow(Train(job, 3, 20, "never"));
  ASSERT_TRUE(whole.summary.best);
  const BestValue best = *whole.summary.best;
  EXPECT_EQ(best.metric, "mse");
  ASSERT_LT(best.step, 20);
  const auto bests_after = [&](std::int64_t epoch) -> BestSoFar {
    const auto manifest = ReadManifest(ckpt(), {.epoch = epoch, .step = 24, .committed = true});
    EXPECT_TRUE(manifest.ok()) << manifest.status().message();
    return manifest.ok() ? manifest->cursor.best : BestSoFar{};
  };
  EXPECT_EQ(bests_after(1), (BestSoFar{.evaluated = 24,
                                       .step = best.step,
                                       .value = best.value,
                                       .reference = best.value,
                                       .waited = 24 - best.step}));
  double least = std::numeric_limits<double>::max();
  for (const std::string& eval : whole.evals) {
    least = std::min(least, std::stod(eval.substr(eval.find(' '))));
  }
  EXPECT_EQ(best.value, least);

  ASSERT_OK(Train(job, 3, 20, CheckpointPath(20)));
  EXPECT_EQ(bests_after(2), bests_after(1));
  keep_ = 1;
  ASSERT_TRUE(Train(job, 3, 20, CheckpointPath(20)).ok());
  const auto left = ValueOrThrow(ListGenerations(ckpt()));
  EXPECT_THAT(left, ElementsAre(Field(&Generation::step, 24), Field(&Generation::step, best.step)));
  EXPECT_EQ(FindBest(ckpt(), left), left.back());
}

// Update 1 of the first line is the start of the second one, in which the best update has no
// checkpoint; that of the first line with its number has other weights.
TEST_F(BestEvaluationRunTest, CheckpointOfLineGivenUpIsNotTheBest) {
  Job job = JobThatGoesUpAgain();
  job.evaluation = {.every_updates = 1};
  keep_ = 100;
  const auto first = ValueOrThrow(Train(job, 1, 1, "never"));
  EXPECT_EQ(FindBest(ckpt(), ValueOrThrow(ListGenerations(ckpt())))->step,
            first.summary.best->step);
  job.optimizer.lr = 0.5;
  const auto second = ValueOrThrow(Train(job, 1, 100, CheckpointPath(1)));
  const std::int64_t best = second.summary.best->step;
  ASSERT_GT(best, 1);
  ASSERT_LT(best, 24);
  EXPECT_TRUE(std::filesystem::exists(CheckpointPath(best)));
  EXPECT_FALSE(FindBest(ckpt(), ValueOrThrow(ListGenerations(ckpt()))));
}

}  // namespace
}  // namespace gaccd
