// How a training saves at boundaries and inside updates, and how it stops there.
#include "daemon/train/checkpoint_and_stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/train_state.h"
#include "daemon/train/control_words.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/train/fake_engine.h"
#include "tests/unit/train/rank_training.h"
#include "tests/unit/train/small_regression.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;
using tests::FakeEngine;
using tests::MakePlan;
using tests::SmallRegression;

const StepProgram kProgram{.computed = 5};

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

TEST(SavesAndStopsTest, WithoutStopsAndSaverNothingHappens) {
  const ProgressNotifier progress;
  TrainingSummary summary;
  CheckpointAndStop control(nullptr, nullptr, progress, &summary);
  control.BeginUpdate(0);
  EXPECT_FALSE(control.LeavesUpdate(0, 2, kProgram).value());
  EXPECT_FALSE(control.left_update());
  EXPECT_EQ(control.decision().action, StopAction::kContinue);
  EXPECT_FALSE(control.SaveIsDue(1, true).value());
  EXPECT_TRUE(control.AtBoundary(1, true, true).ok());
  EXPECT_TRUE(control.Finish().ok());
}

TEST(SavesAndStopsTest, AWindowThatIsLeftIsNamed) {
  const auto comm = MakeSingle();
  const ProgressNotifier progress;
  for (const StopAction action : {StopAction::kExit, StopAction::kSaveBeforeStop}) {
    TrainingSummary summary;
    StopInsideAgreement stops(*comm, action);
    CheckpointAndStop control(&stops, nullptr, progress, &summary);
    EXPECT_FALSE(control.LeavesUpdate(6, 1, kProgram).value());
    EXPECT_TRUE(control.LeavesUpdate(6, 2, kProgram).value());
    EXPECT_TRUE(control.left_update());
    const Status status = control.StopInside();
    EXPECT_THAT(status, HasKind(ErrorKind::kTempFail));
    EXPECT_THAT(status,
                HasMessage(HasSubstr("stopped by the test inside update 7 after micro-step 2")));
    EXPECT_EQ(status.message().find("is to be repeated") != std::string::npos,
              action == StopAction::kSaveBeforeStop);
    EXPECT_THAT(status, HasMessage(HasSubstr("not saved")));
  }
}

// A program whose buffers are not saved begins its update again.
TEST(SavesAndStopsTest, AWindowThatCannotContinueIsRepeated) {
  const auto comm = MakeSingle();
  const ProgressNotifier progress;
  TrainingSummary summary;
  StopInsideAgreement stops(*comm, StopAction::kSaveStop);
  CheckpointAndStop control(&stops, nullptr, progress, &summary);
  EXPECT_TRUE(control.LeavesUpdate(6, 2, {.computed = 5, .continues = false}).value());
  EXPECT_THAT(control.StopInside(), HasMessage(HasSubstr("is to be repeated")));
}

// The generation has these buffers, with the values of FakeEngine.
void ExpectSaved(Communicator& comm, const std::string& folder, const Generation& generation,
                 const std::map<std::string_view, EngineBuffer>& buffers) {
  const auto saved =
      LoadGeneration(comm, folder, generation, [](const Manifest&) { return Status::Ok(); });
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved->manifest.cursor.samples, 20 * generation.step);
  std::size_t seen = 0;
  for (std::size_t i = 0; i < saved->buffers.size(); ++i) {
    const auto found = buffers.find(saved->manifest.buffers[i].name);
    if (found == buffers.end()) continue;
    ++seen;
    std::vector<float> values(saved->buffers[i].size() / sizeof(float));
    std::memcpy(values.data(), saved->buffers[i].data(), saved->buffers[i].size());
    EXPECT_FALSE(values.empty()) << found->first;
    for (std::size_t k = 0; k < values.size(); ++k) {
      ASSERT_EQ(values[k], FakeEngine::ValueOf(found->second, static_cast<std::int64_t>(k)))
          << found->first;
    }
  }
  EXPECT_EQ(seen, buffers.size());
  EXPECT_EQ(
      generation.micro_step > 0,
      std::ranges::count(saved->manifest.buffers, kAccumulatorsBuffer, &BufferSpec::name) > 0);
}

// After two micro-steps of four samples.
class EngineInWindow final : public FakeEngine {
 public:
  Result<WindowShare> Window() override { return WindowShare{.samples = 8}; }
};

// One rank that saves every two updates.
class SaverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto lease = CheckpointWriter::Claim(*comm_, {.folder = folder_.path()}, MakeOwnerName("t", 0));
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    CheckpointerOptions options;
    options.checkpoints.folder = folder_.path();
    options.policy.every_updates = 2;
    auto checkpointer = Checkpointer::Start(*comm_, {job_, plan_, model_, data_->size(), best_},
                                            engine_, options, *std::move(lease), 0);
    ASSERT_TRUE(checkpointer.ok()) << checkpointer.status().message();
    checkpointer_ = *std::move(checkpointer);
  }

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
  EngineInWindow engine_;
  std::unique_ptr<Checkpointer> checkpointer_;
  TrainingSummary summary_;
};

TEST_F(SaverTest, SavesAtBoundariesAndWhereAWindowIsLeft) {
  StopInsideAgreement stops(*comm_, StopAction::kSaveStop);
  CheckpointAndStop control(&stops, checkpointer_.get(), progress_, &summary_);
  for (std::int64_t step = 1; step <= 3; ++step) {
    summary_ = {.updates = step, .samples = 20 * step};
    const bool due = control.SaveIsDue(step, false).value();
    EXPECT_EQ(due, step == 2);
    const Status status = control.AtBoundary(step, due, false);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(control.SaveIsDue(3, true).value());
  EXPECT_TRUE(control.LeavesUpdate(3, 2, kProgram).value());
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

// A save is guessed to take hours, which the job does not have; then one took milliseconds.
TEST_F(SaverTest, StopsAreJudgedByWhatTheLastSaveTook) {
  const auto job_end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  StopAgreement stops(
      *comm_, {.job_end = job_end, .checkpoints = true, .save_guess = std::chrono::hours(3)});
  CheckpointAndStop control(&stops, checkpointer_.get(), progress_, &summary_);
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
