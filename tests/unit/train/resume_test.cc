// A training that continues from a checkpoint ends with the same weights as one that never stopped:
// bit for bit on the same ranks, to rounding on others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "daemon/device/cpu/onednn.h"
#include "tests/support/engine_runs.h"
#include "tests/support/file_util.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using tests::Distance;
using tests::Place;
using tests::ResumeTest;
using tests::SmallJob;

// bf16: with the weights rounded anew.
class ResumePrecisionTest : public ResumeTest, public ::testing::WithParamInterface<Precision> {};

TEST_P(ResumePrecisionTest, IsBitIdenticalFromEveryCheckpointOnSameRanks) {
  if (GetParam() == Precision::kBF16 && DetectCpuBf16() == CpuBf16::kNone) {
    GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  }
  Job job = SmallJob();
  job.precision = GetParam();
  const auto last = ValueOrThrow(Train(job, 3, 0, "never"));
  job.optimizer.ema = EmaSpec{0.75};
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  EXPECT_EQ(plain.weights, last.weights) << "to average changes nothing";
  EXPECT_NE(plain.averaged, plain.weights);
  EXPECT_NE(plain.evals, last.evals) << "evaluations use the average";
  const auto whole = ValueOrThrow(Train(job, 3, 5, "never"));
  EXPECT_EQ(whole.weights, plain.weights) << "saving changes nothing";
  for (const std::int64_t step : {5, 10, 15, 20, 24}) {
    const auto resumed = ValueOrThrow(Train(job, 3, 0, CheckpointPath(step)));
    EXPECT_EQ(resumed.first, step);
    EXPECT_EQ(resumed.weights, plain.weights) << "from update " << step;
    EXPECT_EQ(resumed.averaged, plain.averaged) << "from update " << step;
    EXPECT_EQ(resumed.evals.back(), plain.evals.back());
    EXPECT_EQ(resumed.summary.updates, 24);
    EXPECT_EQ(resumed.summary.samples, 3 * 230);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResumePrecisionTest,
                         ::testing::Values(Precision::kF32, Precision::kBF16));

// Left inside an update, the same micro-steps continue: bit for bit. 3 ranks take 32 samples in 3
// micro-steps, the update at the end of an epoch 6 samples in 1.
TEST_F(ResumeTest, ContinuesInsideUpdateWithSameMicroSteps) {
  const Job job = SmallJob();
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  const Place stops[] = {{1, 1}, {4, 2}, {4, 1}, {19, 2}};
  for (const Place& stop : stops) {
    std::filesystem::remove_all(ckpt());
    const auto left = Train(job, 3, 100, "never", stop);
    ASSERT_THAT(left, HasKind(ErrorKind::kTempFail));
    const Generation partial{.epoch = 1, .step = stop.update - 1, .micro_step = stop.done};
    ASSERT_TRUE(std::filesystem::exists(ckpt() + "/" + partial.name() + "/MANIFEST"))
        << left.status().message();
    const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
    EXPECT_EQ(resumed.first, stop.update - 1);
    EXPECT_EQ(resumed.weights, plain.weights) << stop.update << ", " << stop.done;
    EXPECT_EQ(resumed.steps,
              std::vector<std::string>(plain.steps.begin() + stop.update - 1, plain.steps.end()));
    EXPECT_EQ(resumed.summary.samples, 3 * 230);
    // Other ranks or micro-batches have other micro-steps: the update begins again.
    const auto other = ValueOrThrow(Train(job, 2, 0, "auto"));
    EXPECT_LT(Distance(other.weights, plain.weights), 1e-5);
    EXPECT_EQ(other.summary.samples, 3 * 230);
  }
}

// So every attempt makes progress.
TEST_F(ResumeTest, ResumedWindowRunsAtLeastOneMicroStep) {
  const Place stop{4, 1};
  ASSERT_FALSE(Train(SmallJob(), 3, 100, "never", stop).ok());
  EXPECT_OK(Train(SmallJob(), 3, 100, "auto", stop));
}

// The best state already exists. Saved again, it would be newer than what is resumed.
TEST_F(ResumeTest, InsideUpdateSavesNothingBeforeItEnds) {
  Job job = SmallJob();
  job.evaluation.keep_best = true;
  ASSERT_FALSE(Train(job, 3, 100, "never", {9, 1}).ok());
  ASSERT_TRUE(HasBest(ckpt(), 8));
  ASSERT_FALSE(Train(job, 3, 100, "auto", {9, 2}).ok());
  EXPECT_FALSE(std::filesystem::exists(ckpt() + "/" + Generation{.epoch = 2, .step = 8}.name()));
}

// 40 samples in 5 updates, the features of sample 9 as large as this.
class HugeSampleTest : public ResumeTest {
 protected:
  Job JobWith(float huge) {
    constexpr std::size_t kSamples = 40;
    std::vector<float> values(10 * kSamples);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    const auto write = [&](const char* name, std::size_t width) {
      return temp_.Write(name, NpyFloats(std::span(values).first(kSamples * width),
                                         static_cast<std::int64_t>(width)));
    };
    Job job = SmallJob();
    NpySpec source{.features = {}, .targets = write("targets", 2)};
    std::fill_n(values.begin() + 10 * 9, 10, huge);
    source.features = write("features", 10);
    job.data = {.train = source, .eval = {}, .shuffle = false};
    job.batch.target = 8;
    job.epochs = 1;
    guards_.on_nonfinite = OnNonfinite::kSkipUpdate;
    return job;
  }
};

// A partial update whose loss is not finite would be taken for damaged.
TEST_F(HugeSampleTest, NonFiniteWindowIsRepeated) {
  Job job = JobWith(std::numeric_limits<float>::max());
  job.batch.micro = 2;
  const auto plain = ValueOrThrow(Train(job, 2, 100, "never"));
  EXPECT_EQ(plain.summary.skipped, 1);
  std::filesystem::remove_all(ckpt());
  EXPECT_THAT(Train(job, 2, 100, "never", {2, 1}),
              IsError(ErrorKind::kTempFail, "inside update 2", "nothing of it is saved"));
  EXPECT_TRUE(std::filesystem::exists(CheckpointPath(1) + "/MANIFEST"));
  const auto resumed = ValueOrThrow(Train(job, 2, 0, "auto"));
  EXPECT_EQ(resumed.first, 1);
  EXPECT_EQ(resumed.weights, plain.weights);
}

// AdamW counts the updates that it did, not those that were left out.
TEST_F(HugeSampleTest, IsBitIdenticalAfterSkippedUpdate) {
  const Job job = JobWith(1e30F);  // its gradient is not finite
  const auto plain = ValueOrThrow(Train(job, 2, 3, "never"));
  EXPECT_EQ(plain.summary.skipped, 1);
  const auto resumed = ValueOrThrow(Train(job, 2, 0, CheckpointPath(3)));
  EXPECT_EQ(resumed.first, 3);
  EXPECT_EQ(resumed.weights, plain.weights);
  EXPECT_EQ(resumed.summary.samples, plain.summary.samples);
}

// A rule for the learning rate is no matter of which micro-steps there are.
TEST_F(ResumeTest, InsideUpdateWithLearningRateRule) {
  Job job = SmallJob();
  job.batch.lr_rule = LrRule::kLinear;
  ASSERT_FALSE(Train(job, 3, 100, "never", {4, 2}).ok());
  const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
  EXPECT_EQ(resumed.warnings, "");
  const auto other = ValueOrThrow(Train(job, 2, 0, "auto"));
  EXPECT_EQ(other.warnings,
            "update 4 restarts, 2 micro-steps of it are lost: the checkpoint has ranks 3, this job "
            "has 2\n");
}

TEST_F(ResumeTest, RepeatsUpdateWithoutTimeForAccumulators) {
  const Job job = SmallJob();
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  EXPECT_THAT(
      Train(job, 3, 100, "never", {4, 2, StopAction::kSaveBeforeStop}),
      HasMessage(EndsWith("stopped by the test inside update 4 after micro-step 2, which is to be "
                          "repeated (nothing of it is saved), saved")));
  ASSERT_TRUE(std::filesystem::exists(CheckpointPath(3) + "/MANIFEST"));
  const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
  EXPECT_EQ(resumed.first, 3);
  EXPECT_EQ(resumed.weights, plain.weights);
  EXPECT_EQ(resumed.summary.samples, 3 * 230);
}

TEST_F(ResumeTest, RequestInLastUpdateKeepsRunComplete) {
  Job job = SmallJob();
  job.data.eval.reset();
  job.max_updates = 7;
  EXPECT_THAT(Train(job, 2, 100, "never", {.update = 6, .done = 1, .at_boundary = true}),
              HasMessage(EndsWith("stopped by the test after update 6, saved")));
  const auto last =
      ValueOrThrow(Train(job, 2, 100, "auto", {.update = 7, .done = 1, .at_boundary = true}));
  EXPECT_EQ(last.first, 6);
}

// After updates 8, 16 and 24.
TEST_F(ResumeTest, RepeatsInterruptedEvaluation) {
  Job job = SmallJob();
  job.optimizer.ema = EmaSpec{0.75};  // evaluations use the averages, training is not
  const auto plain = ValueOrThrow(Train(job, 3, 0, "never"));
  EXPECT_THAT(Train(job, 3, 100, "never", {.evaluation = 1}),
              HasMessage(EndsWith("stopped by the test after update 8, saved")));
  const auto resumed = ValueOrThrow(Train(job, 3, 0, "auto"));
  EXPECT_EQ(resumed.first, 8);
  EXPECT_EQ(resumed.evaluations, 3);
  EXPECT_EQ(resumed.weights, plain.weights);
  EXPECT_EQ(resumed.averaged, plain.averaged);
  // Inside the update after it, it was done.
  ASSERT_FALSE(Train(job, 3, 100, "never", {9, 1}).ok());
  std::filesystem::remove_all(CheckpointPath(8));
  const auto inside = ValueOrThrow(Train(job, 3, 0, "auto"));
  EXPECT_EQ(inside.first, 8);
  EXPECT_EQ(inside.evaluations, 2);
}

// A checkpoint from which nothing more is trained, or which is the best, is saved in the run's own
// folder, too.
TEST_F(ResumeTest, SavesWhatItOnlyInherits) {
  Job job = SmallJob();
  job.evaluation.keep_best = true;
  const auto plain = ValueOrThrow(Train(job, 3, 100, "never"));  // 8, 16 and 24
  ASSERT_EQ(plain.summary.best->step, 24);
  const TempFolder other;
  const std::string from = other.path() + "/" + Generation{1, 24}.name();
  std::filesystem::rename(CheckpointPath(24), from);
  const auto complete = ValueOrThrow(Train(job, 3, 100, from));
  EXPECT_EQ(complete.first, 24);
  EXPECT_EQ(complete.evaluations, 1);
  EXPECT_EQ(complete.averaged, plain.averaged);
  EXPECT_EQ(ValueOrThrow(Train(job, 3, 100, "auto")).first, 24) << "which it has saved";
  std::filesystem::remove_all(ckpt());
  job.epochs = 4;
  job.optimizer.lr = 1e-12;  // no later evaluation is better
  const auto longer = ValueOrThrow(Train(job, 3, 100, from));
  EXPECT_EQ(longer.evaluations, 1) << "that of update 24 is not repeated";
  EXPECT_TRUE(HasBest(ckpt(), longer.summary.best->step));
}

// Stopped inside update 9 of a training that now ends after 8.
TEST_F(ResumeTest, ShortenedTrainingIsEvaluatedAndSaved) {
  Job job = SmallJob();
  ASSERT_FALSE(Train(job, 2, 100, "never", {9, 1}).ok());
  job.max_updates = 8;
  const auto shorter = ValueOrThrow(Train(job, 2, 100, "auto"));
  EXPECT_EQ(shorter.first, 8);
  EXPECT_EQ(shorter.evaluations, 1);
  const auto all = ValueOrThrow(ListGenerations(ckpt()));
  EXPECT_EQ(std::ranges::count(all, 0, &Generation::micro_step), 1) << "8 is saved";
}

// The cosine of 24 updates has ended at a tenth; of 48 it is in its middle there.
TEST_F(ResumeTest, WarnsOfLearningRateJumpAfterCosine) {
  Job job = SmallJob();
  ASSERT_TRUE(Train(job, 2, 12, "never").ok());
  EXPECT_THAT(Train(job, 2, 0, CheckpointPath(12))->warnings, Not(HasSubstr("learning rate")));
  job.epochs = 6;
  const auto longer = ValueOrThrow(Train(job, 2, 0, CheckpointPath(24)));
  EXPECT_THAT(longer.warnings, HasSubstr("the learning rate jumps from 0.001 to"));
  EXPECT_THAT(longer.warnings, HasSubstr("at update 25"));
  job.schedule = {};
  EXPECT_THAT(Train(job, 2, 0, CheckpointPath(24))->warnings, HasSubstr("learning rate jumps"))
      << "up from the end of the cosine";
  job.optimizer.lr = 0.5;
  EXPECT_THAT(Train(job, 2, 0, CheckpointPath(24))->warnings,
              HasSubstr("at update 25: optimizer.lr was 0.01, it is 0.5 now; the schedule had 24"));
}

TEST_F(ResumeTest, LearningRateOfRuleDoesNotJump) {
  Job job = SmallJob();
  job.batch.lr_rule = LrRule::kLinear;
  job.batch.reference = 8;
  job.schedule = {};
  ASSERT_TRUE(Train(job, 2, 12, "never").ok());
  job.epochs = 6;
  EXPECT_THAT(Train(job, 2, 0, CheckpointPath(24))->warnings, Not(HasSubstr("learning rate")));
}

// With last_cycle carry only the last update of a run may be smaller: update 8 of one epoch takes 6
// samples, of two epochs 32.
TEST_F(ResumeTest, DoesNotExtendFinishedRunWithTailUpdate) {
  Job job = SmallJob();
  job.batch.last_cycle = LastCycle::kCarry;
  job.epochs = 1;
  ASSERT_TRUE(Train(job, 2, 4, "never").ok());
  job.epochs = 2;
  EXPECT_THAT(Train(job, 2, 0, "auto"),
              IsError(ErrorKind::kConfig,
                      "its update 8 took 6 samples after 224, in this job it takes 32"));
  const auto before = ValueOrThrow(Train(job, 2, 0, CheckpointPath(4)));
  EXPECT_EQ(before.summary.samples, 2 * 230);
}

TEST_F(ResumeTest, OnOtherRanksAndMicroBatchesEqualToRounding) {
  Job job = SmallJob();
  const auto whole = ValueOrThrow(Train(job, 4, 7, "never"));
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t micro : {2, 9}) {
      job.batch.micro = micro;
      const auto resumed = ValueOrThrow(Train(job, ranks, 0, CheckpointPath(14)));
      EXPECT_LT(Distance(resumed.weights, whole.weights), 1e-5) << ranks << " x " << micro;
      EXPECT_EQ(resumed.summary.samples, 3 * 230);
    }
  }
}

TEST_F(ResumeTest, AutoLoadsNewestIntactAndReportsSkipped) {
  const Job job = SmallJob();
  const auto whole = ValueOrThrow(Train(job, 2, 6, "auto"));
  EXPECT_EQ(whole.first, 0) << "nothing there: a fresh start";
  std::filesystem::remove_all(CheckpointPath(24));
  std::filesystem::resize_file(CheckpointPath(18) + "/shard-00001-of-00002.bin", 99);
  std::ofstream(ckpt() + "/LATEST") << "step-000000000006-e000001\n";  // a hint, and wrong
  const auto resumed = ValueOrThrow(Train(job, 2, 0, "auto"));
  EXPECT_EQ(resumed.first, 12);
  EXPECT_EQ(resumed.weights, whole.weights);
  ASSERT_EQ(resumed.notes.size(), 1u);
  EXPECT_THAT(resumed.notes[0], HasSubstr("step-000000000018-e000001: "));
  EXPECT_EQ(Train(job, 2, 0, "never")->first, 0);
  EXPECT_EQ(Train(job, 2, 0, folder_)->first, 12) << "a run folder by name";
  EXPECT_THAT(Train(job, 2, 0, CheckpointPath(18)), HasKind(ErrorKind::kData))
      << "by name there is no other";
  for (const std::int64_t step : {6, 12})
    std::filesystem::resize_file(CheckpointPath(step) + "/MANIFEST", 9);
  const auto none = Train(job, 2, 0, "auto");
  EXPECT_THAT(none, IsError(ErrorKind::kData, "3 checkpoints and none is intact"))
      << "not silently from the start";
  EXPECT_THAT(Train(job, 2, 0, folder_),
              IsError(ErrorKind::kData, "--resume", "3 checkpoints and none is intact",
                      "step-000000000018-e000001: "));
  // It may be intact: of another user, or on a disk that fails.
  std::filesystem::remove(CheckpointPath(12) + "/MANIFEST");
  std::filesystem::create_directory(CheckpointPath(12) + "/MANIFEST");
  for (const std::string& from : {std::string("auto"), folder_}) {
    EXPECT_THAT(Train(job, 2, 0, from),
                AllOf(IsError(ErrorKind::kIo, "3 checkpoints, none can be used",
                              "step-000000000012-e000001: ", "cannot read"),
                      HasMessage(Not(HasSubstr("never")))));
  }
}

// What --resume says is where the first attempt of a SLURM job begins; after a requeue the job
// continues from what its own attempts have committed, and from nothing else.
TEST_F(ResumeTest, RequeuedJobContinuesFromOwnCheckpoints) {
  const Job job = SmallJob();
  ASSERT_TRUE(Train(job, 2, 10, "never").ok());  // another job, which left 10, 20 and 24
  const std::string path = CheckpointPath(10);
  for (const std::string& from : {std::string("never"), path}) {
    for (const int in_vain : {0, 2}) {  // so many attempts before the one with a checkpoint
      job_id_ = StrCat("81", in_vain, from.size());
      const std::int64_t begin = from == "never" ? 0 : 10;
      for (restarts_ = 0; restarts_ < in_vain; ++restarts_) EndBeforeTheFirstSave();
      EXPECT_THAT(Train(job, 2, 100, from, {begin + 3, 1}), HasKind(ErrorKind::kTempFail));
      ++restarts_;
      const auto last = ValueOrThrow(Train(job, 2, 100, from));
      EXPECT_EQ(last.first, begin + 2) << "--resume=" << from << " after " << in_vain;
    }
  }
}

TEST_F(ResumeTest, OwnCheckpointContinuesTraining) {
  const std::string from = temp_.path() + "/x";
  for (const std::int64_t epoch : {1, 2, 3}) {
    ResumePoint point;
    point.state.emplace().generation.epoch = epoch;
    point.folder = temp_.path();
    ResumeSource source{.folder = temp_.path(), .from = from, .job_since = {}};
    source.training.since = 2;
    EXPECT_EQ(source.NewTraining(point), epoch < 2 ? from : "") << epoch;
    source.from = "auto";
    EXPECT_EQ(source.NewTraining(point), "");
  }
}

TEST_F(ResumeTest, RestartedTrainingIgnoresEarlierCheckpoints) {
  const Job job = SmallJob();
  ASSERT_TRUE(Train(job, 2, 10, "never").ok());  // 10, 20 and 24
  keep_ = 1;
  ASSERT_THAT(Train(job, 2, 2, "never", {7, 1}), HasKind(ErrorKind::kTempFail));
  const auto all = ValueOrThrow(ListGenerations(ckpt()));
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].epoch, 2);
  EXPECT_THAT(EarlierTrainingWarning(ckpt(), NewestTraining(ckpt()), false),
              HasSubstr("holds 3 checkpoints of an earlier training"));
}

// A start with --resume=never, or from another run's checkpoint, that is killed before it saves.
TEST_F(ResumeTest, RestartsIfNothingWasSaved) {
  const Job job = SmallJob();
  ASSERT_TRUE(Train(job, 2, 10, "never").ok());
  const TempFolder other;
  std::filesystem::copy(CheckpointPath(10), StrCat(other.path(), "/", Generation{1, 10}.name()));
  for (const std::string& from :
       {std::string("never"), other.path() + "/" + Generation{1, 10}.name()}) {
    EndBeforeTheFirstSave(from);
    job_id_ = "hand";
    EndBeforeTheFirstSave();  // what the newest claim says is handed on
    const auto trained = ValueOrThrow(Train(job, 2, 100, "auto"));
    EXPECT_EQ(trained.first, from == "never" ? 0 : 10) << from;
    EXPECT_EQ(ValueOrThrow(Train(job, 2, 100, "auto")).first, 24) << "which has saved now";
  }
}

// From an older checkpoint of its own folder, too.
TEST_F(ResumeTest, GoesBackAgainIfNothingWasSaved) {
  const Job job = SmallJob();
  ASSERT_TRUE(Train(job, 2, 10, "never").ok());  // 10, 20 and 24
  const Place killed{.update = 13, .done = 1, .action = StopAction::kExit};
  ASSERT_THAT(Train(job, 2, 100, CheckpointPath(10), killed), HasKind(ErrorKind::kTempFail));
  const auto trained = ValueOrThrow(Train(job, 2, 100, "auto"));
  EXPECT_EQ(trained.first, 10);
  EXPECT_THAT(trained.notes, ElementsAre(HasSubstr("went back")));
  EXPECT_EQ(ValueOrThrow(Train(job, 2, 100, "auto")).first, 24) << "which it has saved";
  EXPECT_EQ(ValueOrThrow(ListGenerations(ckpt())).size(), 4U) << "it is the same training";
}

// It is not skipped by a later start, nor anything after it.
TEST_F(ResumeTest, StartAtNewestCheckpointDoesNotGoBack) {
  const Job job = SmallJob();
  ASSERT_TRUE(Train(job, 2, 10, "never").ok());  // 10, 20 and 24
  for (const Generation& one : ValueOrThrow(ListGenerations(ckpt()))) {
    if (one.step > 10) {
      ASSERT_OK(RemoveGeneration(ckpt(), one));
    }
  }
  const Place killed{.update = 13, .done = 1, .action = StopAction::kExit};
  ASSERT_THAT(Train(job, 2, 100, CheckpointPath(10), killed), HasKind(ErrorKind::kTempFail));
  EXPECT_EQ(NewestTraining(ckpt()).back_since, 0);
  const auto trained = ValueOrThrow(Train(job, 2, 100, "auto"));
  EXPECT_EQ(trained.first, 10);
  EXPECT_THAT(trained.notes, testing::IsEmpty());
}

// A table in the place of one with as many samples.
TEST_F(ResumeTest, ReportsChangedData) {
  const auto write = [&](const char* name, int seed) {
    std::string text;
    for (int i = 0; i < 230 * 12; ++i) {
      text += StrCat(std::sin(seed + i), i % 12 == 11 ? "\n" : ",");
    }
    return temp_.Write(name, text);
  };
  Job job = SmallJob();
  job.data.train = CsvSpec{.path = write("train.csv", 1), .targets = 2};
  job.data.eval = CsvSpec{.path = write("eval.csv", 2), .targets = 2};
  ASSERT_TRUE(Train(job, 2, 12, "never").ok());
  EXPECT_EQ(Train(job, 2, 0, CheckpointPath(12))->warnings, "");
  write("eval.csv", 3);
  EXPECT_THAT(Train(job, 2, 0, CheckpointPath(12))->warnings,
              HasSubstr("not those of the checkpoint: the evaluation data (content "));
  write("train.csv", 4);
  EXPECT_THAT(
      Train(job, 2, 0, CheckpointPath(12))->warnings,
      AllOf(HasSubstr(": the training data (content "), HasSubstr(" and the evaluation data "),
            HasSubstr(" changed; the run continues with the new ones")));
}

// The losses over larger targets are never below that of update 8 over the first ones.
TEST_F(ResumeTest, ForgetsBestValueOverOtherEvaluationData) {
  const auto write = [&](double factor) {
    std::string text;
    for (int i = 0; i < 40 * 12; ++i) {
      text += StrCat(factor * std::sin(2 + i), i % 12 == 11 ? "\n" : ",");
    }
    return temp_.Write("eval.csv", text);
  };
  Job job = SmallJob();
  job.data.eval = CsvSpec{.path = write(1), .targets = 2};
  ASSERT_TRUE(Train(job, 2, 12, "never").ok());  // evaluates after 8, 16 and 24
  write(1000);
  EXPECT_GT(ValueOrThrow(Train(job, 2, 0, CheckpointPath(12))).summary.best->step, 8);
}

// Older checkpoints do not say over which data it was.
TEST_F(ResumeTest, KeepsBestValueOverUnknownEvaluationData) {
  const Job job = SmallJob();
  ASSERT_OK(Train(job, 1, 12, "never"));
  const auto comm = MakeSingle();
  LoadedState state =
      ValueOrThrow(LoadGeneration(*comm, ckpt(), {.epoch = 1, .step = 12, .committed = true},
                                  [](const Manifest&, const Job&) { return Status::Ok(); }));
  const auto best_after = [&](const DataContent& content) {
    state.manifest.cursor.content = content;
    const auto trainer = ValueOrThrow(Trainer::Make(
        *comm, ValueOrThrow(tests::OpenInputs(*comm, job, *tests::MakePlan(job, 1)))));
    EXPECT_OK(trainer->Resume(state, /*in_own_folder=*/true));
    return trainer->best();
  };
  ASSERT_TRUE(best_after({}));
  EXPECT_EQ(best_after({})->step, 8);
  EXPECT_FALSE(best_after({.eval = 1}));
}

TEST_F(ResumeTest, RefusesAnotherRunByName) {
  Job job = SmallJob();
  job.data.class_name = {"neg", "pos"};
  job.data.column_name = {"age", "kind"};
  ASSERT_TRUE(Train(job, 2, 12, "never").ok());
  const auto error = [&](const std::function<void(Job&)>& change) {
    Job other = job;
    change(other);
    const auto refused = Train(other, 2, 0, "auto");
    EXPECT_THAT(refused, HasKind(ErrorKind::kConfig));
    return refused.status().message();
  };
  EXPECT_THAT(error([](Job& j) { j.seed = 2; }), HasSubstr("seed: 1 -> 2"));
  EXPECT_THAT(error([](Job& j) {
                j.data.class_name = {"pos", "neg"};
              }),
              HasSubstr("class 0 is 'neg'"));
  EXPECT_THAT(error([](Job& j) {
                j.data.column_name = {"kind", "age"};
              }),
              HasSubstr("the columns are 'age', 'kind' in the checkpoint, and 'kind', 'age' in"));
  EXPECT_THAT(error([](Job& j) { j.batch.target = 31; }),
              HasSubstr("the effective batch 32, this job has 31; a target_schedule"));
  EXPECT_THAT(error([](Job& j) { j.data.shuffle = false; }),
              HasSubstr("data.shuffle: true -> false"));
  EXPECT_THAT(error([](Job& j) { j.batch.last_cycle = LastCycle::kCarry; }),
              HasSubstr("batch.last_cycle: UPDATE -> CARRY"));
  EXPECT_THAT(error([](Job& j) { std::get<SyntheticSpec>(j.data.train).samples = 231; }),
              HasSubstr("a data set of 230"));
  EXPECT_THAT(error([](Job& j) { j.optimizer.kind = SgdSpec{.momentum = 0.9}; }),
              HasSubstr("added: optimizer.sgd: { momentum: 0.9"));
  EXPECT_THAT(error([](Job& j) { j.optimizer.kind = AdamWSpec{.beta2 = 0.9}; }),
              HasSubstr("optimizer.adamw.beta2: 0.999 -> 0.9;"));
  EXPECT_THAT(error([](Job& j) { j.optimizer.ema = EmaSpec{0.5}; }),
              HasSubstr("added: optimizer.ema: { decay: 0.5 };"));
  EXPECT_THAT(error([](Job& j) {
                std::get<LinearSpec>(j.model.layer[0].kind).out = 17;
                std::get<LinearSpec>(j.model.layer.back().kind).in = 17;
              }),
              HasSubstr("model.layer[0].linear.out: 16 -> 17"));
  EXPECT_THAT(error([](Job& j) { j.model.layer[1].name = "relu2"; }),
              HasSubstr("another run (checkpoint -> this job): model.layer[1].name"));
  EXPECT_THAT(error([](Job& j) { j.epochs = 1; }), HasSubstr("the job ends after 8"));
  Job other = job;
  other.optimizer = {.lr = 0.02, .kind = AdamWSpec{.epsilon = 1e-7, .weight_decay = 0}};
  EXPECT_TRUE(Train(other, 2, 0, "auto").ok()) << "what the optimizer keeps means the same";
}

}  // namespace
}  // namespace gaccd
