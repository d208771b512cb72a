// How a training saves at boundaries and inside updates, and how it stops there.
#include "daemon/train/run_checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <thread>

#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/train/control_words.h"
#include "tests/support/rank_training.h"
#include "tests/support/small_regression.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/train/fake_engine.h"

namespace gaccd {
namespace {

using tests::FakeBackend;
using tests::FakeEngine;
using tests::MakePlan;
using tests::SmallRegression;

const UpdateProgram kProgram{.computed = 5};

// Asks to stop after micro-step 2.
class StopInsideAgreement final : public StopAgreement {
 public:
  StopInsideAgreement(Communicator& comm, StopAction action)
      : StopAgreement(comm, {.checkpoints = true}), action_(action) {}
  Result<StopDecision> BetweenMicroSteps(std::int64_t done, std::int64_t) override {
    if (done < 2) return StopDecision{};
    return StopDecision{.action = action_, .reason = "the test"};
  }

 private:
  StopAction action_;
};

TEST(RunCheckpointerTest, DoesNothingWithoutStopsAndSaver) {
  const auto comm = MakeSingle();
  const ProgressNotifier progress;
  TrainingSummary summary;
  RunCheckpointer control(*comm);
  control.BeginRun(nullptr, &progress, &summary);
  control.BeginUpdate(0);
  EXPECT_FALSE(control.InterruptsUpdate(0, 2, kProgram).value());
  EXPECT_FALSE(control.interrupted_update());
  EXPECT_EQ(control.decision().action, StopAction::kContinue);
  EXPECT_FALSE(control.SaveIsDue(1, true).value());
  EXPECT_TRUE(control.AtBoundary(1, true, true).ok());
  EXPECT_TRUE(control.Finish().ok());
}

// Whatever the exit waits for, although nothing is saved.
TEST(RunCheckpointerDeathTest, ExitWithoutSaveIsBounded) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const auto comm = MakeSingle();
        StopAgreement stops(*comm, {.exit_bound = std::chrono::milliseconds(50)});
        const ProgressNotifier progress;
        TrainingSummary summary;
        RunCheckpointer control(*comm);
        control.BeginRun(&stops, &progress, &summary);
        (void)control.Stop("after update 1",
                           {.action = StopAction::kExit, .kind = ErrorKind::kTempFail});
        std::this_thread::sleep_for(std::chrono::seconds(30));
      },
      testing::ExitedWithCode(75), "received a request to exit");
}

TEST(RunCheckpointerTest, NamesInterruptedWindow) {
  const auto comm = MakeSingle();
  const ProgressNotifier progress;
  for (const StopAction action : {StopAction::kExit, StopAction::kSaveBeforeStop}) {
    TrainingSummary summary;
    StopInsideAgreement stops(*comm, action);
    RunCheckpointer control(*comm);
    control.BeginRun(&stops, &progress, &summary);
    EXPECT_FALSE(control.InterruptsUpdate(6, 1, kProgram).value());
    EXPECT_TRUE(control.InterruptsUpdate(6, 2, kProgram).value());
    EXPECT_TRUE(control.interrupted_update());
    const Status status = control.StopInside();
    EXPECT_THAT(status, IsError(ErrorKind::kTempFail,
                                "stopped by the test inside update 7 after micro-step 2"));
    EXPECT_EQ(status.message().find("is to be repeated") != std::string::npos,
              action == StopAction::kSaveBeforeStop);
    EXPECT_THAT(status, HasMessage(HasSubstr("not saved")));
  }
}

// A program whose buffers are not saved begins its update again.
TEST(RunCheckpointerTest, RepeatsWindowThatCannotContinue) {
  const auto comm = MakeSingle();
  const ProgressNotifier progress;
  TrainingSummary summary;
  StopInsideAgreement stops(*comm, StopAction::kSaveStop);
  RunCheckpointer control(*comm);
  control.BeginRun(&stops, &progress, &summary);
  const UpdateProgram program = SegmentBySegment(
      *Plan::Make({.nodes = 1, .gpus_per_node = 1, .micro_batch = 4, .target_batch = 12}), 1);
  EXPECT_TRUE(control.InterruptsUpdate(6, 5, program).value());
  EXPECT_THAT(control.StopInside(),
              HasMessage(HasSubstr("inside update 7 after micro-step 1 of 3 in pass 2 of 2, which "
                                   "is to be repeated (nothing of it is saved)")));
}

// The generation has these buffers, with the values of FakeBackend.
void ExpectSaved(Communicator& comm, const std::string& folder, const Generation& generation,
                 const std::map<std::string_view, EngineBuffer>& buffers) {
  const auto saved = ValueOrThrow(LoadGeneration(
      comm, folder, generation, [](const Manifest&, const Job&) { return Status::Ok(); }));
  EXPECT_EQ(saved.manifest.cursor.samples, 20 * generation.step);
  std::size_t seen = 0;
  for (std::size_t i = 0; i < saved.buffers.size(); ++i) {
    const auto found = buffers.find(saved.manifest.buffers[i].name);
    if (found == buffers.end()) continue;
    ++seen;
    std::vector<float> values(saved.buffers[i].size() / sizeof(float));
    std::memcpy(values.data(), saved.buffers[i].data(), saved.buffers[i].size());
    EXPECT_FALSE(values.empty()) << found->first;
    for (std::size_t k = 0; k < values.size(); ++k) {
      ASSERT_EQ(values[k], FakeBackend::ElementValue(found->second, static_cast<std::int64_t>(k)))
          << found->first;
    }
  }
  EXPECT_EQ(seen, buffers.size());
  EXPECT_EQ(generation.micro_step > 0,
            std::ranges::count(saved.manifest.buffers, kAccumulatorsBuffer, &BufferSpec::name) > 0);
}

// One rank that saves every two updates.
class SavingCheckpointerTest : public ::testing::Test {
 protected:
  void SetUp() override { Start(CheckpointOptions().fail_limit); }

  void Start(std::int64_t fail_limit) {
    auto lease = ValueOrThrow(
        CheckpointWriter::Claim(*comm_, {.folder = folder_.path()}, MakeOwnerName("t", 0)));
    CheckpointerOptions options;
    options.checkpoints.folder = folder_.path();
    options.checkpoints.fail_limit = fail_limit;
    options.checkpoints.patience = std::chrono::milliseconds(1);
    options.checkpoints.exchange_every = options.checkpoints.patience;
    options.checkpoints.now = [this, training = std::this_thread::get_id()] {
      while (disk_hangs_ && std::this_thread::get_id() != training) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return std::chrono::steady_clock::now();
    };
    options.policy.every_updates = 2;
    options.on_save = [this](const SaveRecord& save) { records_.push_back(save); };
    checkpointer_ =
        ValueOrThrow(RunCheckpointer::Start(*comm_, {job_, plan_, model_, data_->size(), best_},
                                            engine_, options, std::move(lease), 0));
  }

  void TearDown() override { disk_hangs_ = false; }

  std::atomic<bool> disk_hangs_ = false;
  const TempFolder folder_;
  const std::unique_ptr<Communicator> comm_ = MakeSingle();
  const Job job_ = [] {
    Job job = SmallRegression();
    job.batch = {.target = 20, .micro = 4};
    job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
    job.epochs = 1;
    return job;
  }();
  const Plan plan_ = MakePlan(job_, 1).value();
  const std::unique_ptr<Dataset> data_ = OpenDataset(job_.data.train, {}).value();
  const Model model_ = Model::Make(job_.model, data_->spec()).value();
  const BestSoFar best_;
  const ProgressNotifier progress_;
  FakeEngine<> engine_{job_.optimizer, model_};
  std::vector<SaveRecord> records_;
  std::unique_ptr<RunCheckpointer> checkpointer_;
  TrainingSummary summary_;
};

TEST_F(SavingCheckpointerTest, SavesAtBoundariesAndInterruptedWindows) {
  StopInsideAgreement stops(*comm_, StopAction::kSaveStop);
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(&stops, &progress_, &summary_);
  for (std::int64_t step = 1; step <= 3; ++step) {
    summary_ = {.updates = step, .samples = 20 * step};
    const bool due = control.SaveIsDue(step, false).value();
    EXPECT_EQ(due, step == 2);
    EXPECT_OK(control.AtBoundary(step, due, false));
  }
  EXPECT_TRUE(control.SaveIsDue(3, true).value());
  ASSERT_TRUE((*engine_).Begin({.samples = 20}).ok());
  ASSERT_TRUE((*engine_).MicroStep({.samples = 8}, {.first = true}).ok());
  EXPECT_TRUE(control.InterruptsUpdate(3, 2, kProgram).value());
  EXPECT_THAT(control.StopInside(),
              HasMessage(HasSubstr("inside update 4 after micro-step 2, saved")));
  ASSERT_TRUE(checkpointer_->last_saved().has_value());
  EXPECT_EQ(checkpointer_->last_saved()->step, 3);
  EXPECT_EQ(checkpointer_->last_saved()->micro_step, 2);
  ExpectSaved(*comm_, folder_.path(), {.epoch = 1, .step = 2, .committed = true},
              {{kParametersBuffer, EngineBuffer::kParameters}});
  ExpectSaved(*comm_, folder_.path(), {.epoch = 1, .step = 3, .micro_step = 2, .committed = true},
              {{kParametersBuffer, EngineBuffer::kParameters},
               {kAccumulatorsBuffer, EngineBuffer::kGradients}});
}

// The folders of the first and the third cannot be made.
TEST_F(SavingCheckpointerTest, FailedSaveSaysWhetherAnotherRemains) {
  for (const std::int64_t step : {2, 6}) {
    (void)folder_.Write(Generation{.epoch = 1, .step = step}.name(), "x");
  }
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(nullptr, &progress_, &summary_);
  testing::internal::CaptureStderr();
  std::size_t saved = 0;
  for (const std::int64_t step : {2, 4, 6}) {
    summary_ = {.updates = step, .samples = 20 * step};
    EXPECT_OK(control.AtBoundary(step, true, false));
    ++saved;
    for (int i = 0; i < 6000 && records_.size() < saved; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_TRUE(control.Poll().ok());
    }
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("step-000000000002-e000001 failed (1 in a row), this attempt has "
                              "saved none"));
  EXPECT_THAT(said, HasSubstr("step-000000000006-e000001 failed (1 in a row), the previous one "
                              "is kept"));
}

// The folder of the first cannot be made.
TEST_F(SavingCheckpointerTest, FailedSaveKeepsSchedule) {
  const std::string in_the_way = folder_.Write(Generation{.epoch = 1, .step = 2}.name(), "x");
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(nullptr, &progress_, &summary_);
  for (std::int64_t step = 1; step <= 4; ++step) {
    summary_ = {.updates = step, .samples = 20 * step};
    const bool due = control.SaveIsDue(step, false).value();
    EXPECT_EQ(due, step % 2 == 0) << step;
    EXPECT_OK(control.AtBoundary(step, due, false));
    for (int i = 0; i < 6000 && step == 2 && records_.empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_TRUE(control.Poll().ok());
    }
  }
  EXPECT_TRUE(control.Finish().ok());
  ASSERT_EQ(records_.size(), 2U);
  EXPECT_THAT(records_[0].reason, HasSubstr(in_the_way));
  EXPECT_EQ(records_[0].failed_in_row, 1);
  EXPECT_EQ(records_[1].reason, "");
  EXPECT_EQ(records_[1].step, 4);
  EXPECT_EQ(checkpointer_->last_saved()->step, 4);
}

TEST_F(SavingCheckpointerTest, FailedLastSaveKeepsStopReason) {
  const std::string in_the_way = folder_.Write(Generation{.epoch = 1, .step = 3}.name(), "x");
  StopInsideAgreement stops(*comm_, StopAction::kSaveStop);
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(&stops, &progress_, &summary_);
  summary_ = {.updates = 3, .samples = 60};
  StopDecision decision;
  decision.action = StopAction::kSaveStop;
  decision.kind = ErrorKind::kTempFail;
  EXPECT_THAT(control.Stop("after update 3", decision),
              IsError(ErrorKind::kTempFail, "after update 3", in_the_way));
}

TEST_F(SavingCheckpointerTest, LastSaveIsTriedNoMoreThanAllowed) {
  checkpointer_.reset();
  Start(/*fail_limit=*/1);
  (void)folder_.Write(Generation{.epoch = 2, .step = 3}.name(), "x");
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(nullptr, &progress_, &summary_);
  summary_ = {.updates = 3, .samples = 60};
  EXPECT_OK(control.AtBoundary(3, true, true));
  EXPECT_THAT(control.Finish(), HasKind(ErrorKind::kIo));
  EXPECT_EQ(records_.size(), 1U);
  EXPECT_TRUE(summary_.failed_together) << "all ranks know it";
}

// The folder of the partial update cannot be made.
TEST_F(SavingCheckpointerTest, SavesStateBeforeUpdateThatDoesNotFit) {
  (void)folder_.Write(Generation{.epoch = 1, .step = 3, .micro_step = 2}.name(), "x");
  StopInsideAgreement stops(*comm_, StopAction::kSaveStop);
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(&stops, &progress_, &summary_);
  summary_ = {.updates = 3, .samples = 60};
  ASSERT_OK((*engine_).Begin({.samples = 20}));
  ASSERT_OK((*engine_).MicroStep({.samples = 8}, {.first = true}));
  EXPECT_TRUE(control.InterruptsUpdate(3, 2, kProgram).value());
  EXPECT_THAT(control.StopInside(),
              HasMessage(HasSubstr("after micro-step 2, which is to be repeated (nothing of it is "
                                   "saved), saved")));
  ExpectSaved(*comm_, folder_.path(), {.epoch = 1, .step = 3, .committed = true},
              {{kParametersBuffer, EngineBuffer::kParameters}});
}

// Of the 200 s that are left a save is guessed to take 100 s, one with the accumulators, as large
// as the parameters, twice as long.
TEST_F(SavingCheckpointerTest, SaveInsideUpdateTakesLongerByAccumulators) {
  auto now = std::chrono::steady_clock::now();
  StopAgreement stops(*comm_, {.job_end = now + std::chrono::seconds(260),
                               .checkpoints = true,
                               .save_guess = std::chrono::seconds(100),
                               .now = [&] { return now; }});
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(&stops, &progress_, &summary_);
  summary_ = {.updates = 3, .samples = 60};
  ASSERT_OK((*engine_).Begin({.samples = 20}));
  ASSERT_OK((*engine_).MicroStep({.samples = 4}, {.first = true}));
  control.BeginUpdate(0);
  now += std::chrono::seconds(60);
  EXPECT_TRUE(control.InterruptsUpdate(3, 1, kProgram).value());
  EXPECT_THAT(control.StopInside(),
              HasMessage(HasSubstr("which is to be repeated (nothing of it is saved), saved")));
}

TEST_F(SavingCheckpointerTest, PostponesSaveWhileTwoArePending) {
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(nullptr, &progress_, &summary_);
  disk_hangs_ = true;
  for (const std::int64_t step : {2, 4, 6}) {
    summary_ = {.updates = step, .samples = 20 * step};
    EXPECT_TRUE(control.SaveIsDue(step, false).value());
    EXPECT_TRUE(control.AtBoundary(step, true, false).ok());
  }
  EXPECT_FALSE(control.SaveIsDue(7, false).value());
  disk_hangs_ = false;
  for (int i = 0; i < 6000 && records_.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(control.Poll().ok());
  }
  EXPECT_TRUE(control.SaveIsDue(9, false).value());
  summary_ = {.updates = 9, .samples = 180};
  EXPECT_TRUE(control.AtBoundary(9, true, false).ok());
  EXPECT_TRUE(control.Finish().ok());
  ASSERT_EQ(records_.size(), 3U);
  EXPECT_EQ(records_.back().step, 9);
  EXPECT_FALSE(control.SaveIsDue(11, false).value()) << "the postponed one was made up for";
}

// As the state of the best evaluation, which would be gone.
TEST_F(SavingCheckpointerTest, KeptStateWaitsForDisk) {
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(nullptr, &progress_, &summary_);
  disk_hangs_ = true;
  for (const std::int64_t step : {2, 4}) {
    summary_ = {.updates = step, .samples = 20 * step};
    EXPECT_OK(control.AtBoundary(step, true, false));
  }
  std::jthread disk([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    disk_hangs_ = false;
  });
  summary_ = {.updates = 6, .samples = 120};
  EXPECT_OK(control.AtBoundary(6, true, /*must=*/true));
  EXPECT_OK(control.Finish());
  EXPECT_EQ(checkpointer_->last_saved()->step, 6);
}

// Each of two ranks has accumulated for itself.
TEST(RunCheckpointerTest, WindowBytesCoverAllRanks) {
  const TempFolder folder;
  Job job = SmallRegression();
  job.batch = {.target = 20, .micro = 4};
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
  const Plan plan = ValueOrThrow(MakePlan(job, 2));
  const std::unique_ptr<Dataset> data = ValueOrThrow(OpenDataset(job.data.train, {}));
  const Model model = ValueOrThrow(Model::Make(job.model, data->spec()));
  std::vector<SaveRecord> records;  // of rank 0
  ASSERT_OK(RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    CheckpointerOptions options;
    options.checkpoints.folder = folder.path();
    options.on_save = [&](const SaveRecord& save) { records.push_back(save); };
    GACCD_ASSIGN_OR_RETURN(
        auto lease, CheckpointWriter::Claim(comm, options.checkpoints, MakeOwnerName("t", 0)));
    const BestSoFar best;
    FakeEngine<> engine{job.optimizer, model};
    GACCD_ASSIGN_OR_RETURN(const auto control,
                           RunCheckpointer::Start(comm, {job, plan, model, data->size(), best},
                                                  engine, options, std::move(lease), 0));
    StopInsideAgreement stops(comm, StopAction::kSaveStop);
    const ProgressNotifier progress;
    TrainingSummary summary{.updates = 3, .samples = 60};
    control->BeginRun(&stops, &progress, &summary);
    GACCD_RETURN_IF_ERROR((*engine).Begin({.samples = 20}));
    GACCD_RETURN_IF_ERROR((*engine).MicroStep({.samples = 4}, {.first = true}));
    GACCD_RETURN_IF_ERROR(control->InterruptsUpdate(3, 2, kProgram).status());
    EXPECT_THAT(control->StopInside(), HasKind(ErrorKind::kTempFail));
    return Status::Ok();
  }));
  ASSERT_EQ(records.size(), 1U);
  const std::int64_t parameters = 4 * model.layout().size();
  EXPECT_EQ(records[0].micro_step, 2);
  EXPECT_EQ(records[0].bytes, parameters + 2 * parameters);
}

TEST_F(SavingCheckpointerTest, SavesOncePerRequest) {
  const TempFolder run_dir;
  const std::string file = run_dir.Write("SAVE", "");
  StopAgreement stops(*comm_, {.run_dir = run_dir.path(), .checkpoints = true});
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(&stops, &progress_, &summary_);
  const auto asked = [&] {
    std::vector<double> words(kStopWordCount);
    stops.Pack(words, 1, 0);
    stops.Unpack(words, 0.1, 1);
    return control.decision().action == StopAction::kSave;
  };
  EXPECT_TRUE(asked());
  summary_ = {.updates = 1, .samples = 20};
  EXPECT_TRUE(control.AtBoundary(1, true, false).ok());
  EXPECT_FALSE(asked());
  for (int i = 0; i < 6000 && std::filesystem::exists(file); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_TRUE(control.Finish().ok());
  EXPECT_EQ(records_.size(), 1U);
}

// A save is guessed to take hours, which the job does not have; then one took milliseconds.
TEST_F(SavingCheckpointerTest, StopsUseDurationOfLastSave) {
  const auto job_end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  StopAgreement stops(
      *comm_, {.job_end = job_end, .checkpoints = true, .save_guess = std::chrono::hours(3)});
  RunCheckpointer& control = *checkpointer_;
  control.BeginRun(&stops, &progress_, &summary_);
  const auto fits = [&] {
    control.BeginUpdate(0);
    std::vector<double> words(kStopWordCount);
    stops.Pack(words, 1, 0);
    return DecodeStopWords(words).time_up == 0;
  };
  EXPECT_FALSE(fits());
  summary_ = {.updates = 2, .samples = 40};
  EXPECT_TRUE(control.AtBoundary(2, true, true).ok());
  EXPECT_TRUE(control.Finish().ok());
  EXPECT_TRUE(fits());
}

}  // namespace
}  // namespace gaccd
