// A small training on ranks that are threads, its checkpoints, and places where it is stopped.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/checkpoint/generations.h"
#include "daemon/plan/speeds.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/run_checkpointer.h"
#include "daemon/train/trainer.h"
#include "tests/support/rank_training.h"
#include "tests/support/small_regression.h"
#include "tests/support/step_events.h"
#include "tests/support/temp_folder.h"

namespace gaccd::tests {

inline Job SmallJob() {
  Job job = SmallRegression();
  job.model.layer.insert(job.model.layer.begin() + 2, {"drop", DropoutSpec{0.2}});
  job.batch.target = 32;
  job.batch.micro = 5;
  job.optimizer = {.lr = 0.01, .kind = AdamWSpec{}};
  job.schedule = {.warmup_updates = 4, .shape = CosineSpec{.final_ratio = 0.1}};
  job.epochs = 3;  // 3 x 8 updates, the last of each of 6 samples
  return job;
}

// A place inside an update: after micro-step `done` of update `update` (both from 1); or in an
// evaluation (from 1). at_boundary: the update is ended first.
struct Place {
  std::int64_t update = 0;
  std::int64_t done = 0;
  StopAction action = StopAction::kSaveStop;
  int evaluation = 0;
  bool at_boundary = false;
};

class ResumeTest : public ::testing::Test {
 protected:
  struct Trained {
    std::vector<float> weights;
    std::vector<float> averaged;  // the same without optimizer.ema
    TrainingSummary summary;
    std::int64_t first = 0;
    std::vector<std::string> notes;
    int evaluations = 0;
    std::string warnings;              // before Run()
    std::string loads;                 // and the loads then
    std::vector<std::string> steps;    // what was reported of each update
    std::vector<std::string> evals;    // "8 0.25": of each evaluation its update and its loss
    std::vector<std::string> targets;  // the first updates of the stages that were reported
  };

  // `device_comm` reduces the gradients; null on CPUs.
  using RankBody = std::function<Status(Communicator& comm, const EngineChoice& choice,
                                        Communicator* device_comm)>;
  virtual Status RunRanks(int ranks, const RankBody& body) {
    return RunThreadRanks(ranks, {.comm = {}, .ranks_per_node = ranks_per_node_},
                          [&](Communicator& comm) { return body(comm, {}, nullptr); });
  }

  // Trains on so many ranks; saves every so many updates (0: never); continues from `from`. stop:
  // the ranks are asked to leave there, with a save.
  Result<Trained> Train(const Job& job, int ranks, std::int64_t every, const std::string& from,
                        Place stop = {}) {
    Trained trained;
    const std::string run_dir = StrCat(folder_, "/run-", runs_++);
    SetLogHook([&](const LogLine& line) { trained.warnings += StrCat(line.message, "\n"); });
    const auto train = [&](Communicator& comm, const EngineChoice& choice,
                           Communicator* device_comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(job, ranks, speeds_));
      GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job));
      if (data_) data.train = data_(comm.rank());
      GACCD_ASSIGN_OR_RETURN(auto inputs, TrainingInputs::Make(comm, job, plan, std::move(data)));
      GACCD_ASSIGN_OR_RETURN(auto trainer, Trainer::Make(comm, std::move(inputs),
                                                         {guards_, choice, device_comm, loads_}));
      std::optional<CheckpointLease> lease;
      if (every > 0) {
        GACCD_ASSIGN_OR_RETURN(lease, CheckpointWriter::Claim(comm, {.folder = ckpt()},
                                                              MakeOwnerName(job_id_, restarts_)));
      }
      ResumeSource source{.folder = ckpt(), .from = from, .job_since = {}};
      if (restarts_ > 0 && lease) source.job_since = lease->job_since;
      if (lease) source.training = lease->training;
      GACCD_ASSIGN_OR_RETURN(const ResumePoint point,
                             FindResumePoint(comm, trainer->saved_run(), source));
      const std::string begun = source.NewTraining(point);
      if (lease && !begun.empty()) GACCD_RETURN_IF_ERROR(lease->BeginTraining(begun));
      const std::string back = source.GoesBackTo(point);
      if (lease && !back.empty()) GACCD_RETURN_IF_ERROR(lease->GoBackTo(back));
      if (point.state) {
        GACCD_RETURN_IF_ERROR(trainer->Resume(*point.state, source.IsOwn(point)));
      }
      GACCD_ASSIGN_OR_RETURN(auto reporter,
                             RunReporter::Start(comm, {.run_dir = run_dir, .quiet = true}));
      std::unique_ptr<RunCheckpointer> checkpointer;
      if (every > 0) {
        CheckpointerOptions options;
        options.checkpoints.folder = ckpt();
        options.checkpoints.keep = {.newest = keep_, .best = job.evaluation.keep_best};
        options.policy.every_updates = every;
        GACCD_ASSIGN_OR_RETURN(
            checkpointer,
            RunCheckpointer::Start(comm, trainer->saved_run(), trainer->engine(), options,
                                   *std::move(lease), trainer->first_update()));
      }
      const std::string loads = LoadsText(trainer->plan());
      TrainingSummary summary;
      StopThere stops(comm, *this, stop, trainer->first_update());
      trainer->SetStops(&stops);
      GACCD_RETURN_IF_ERROR(trainer->Run(*reporter, &summary, checkpointer.get()));
      reporter->Finish(Status::Ok());
      GACCD_ASSIGN_OR_RETURN(std::vector<float> averaged, trainer->FinalParameters());
      GACCD_ASSIGN_OR_RETURN(std::vector<float> weights, trainer->Parameters());
      if (comm.rank() != 0) return Status::Ok();
      trained.loads = loads;
      trained.summary = summary;
      trained.first = trainer->first_update();
      trained.notes = point.notes;
      trained.evaluations = stops.evaluations();
      trained.averaged = std::move(averaged);
      trained.weights = std::move(weights);
      return Status::Ok();
    };
    const Status status = RunRanks(ranks, train);
    SetLogHook({});
    if (!status.ok()) return status;
    trained.evals = EventValues(run_dir, "eval", "step");
    trained.targets = EventValues(run_dir, "target", "step");
    const std::vector<std::string> losses = EventValues(run_dir, "eval", "value");
    for (std::size_t i = 0; i < losses.size(); ++i) trained.evals[i] += " " + losses[i];
    for (const char* key : {"epoch", "step", "steps_total", "samples_total", "loss", "lr",
                            "loss_scale", "growth_tracker"}) {
      const std::vector<std::string> values = StepValues(run_dir, key);
      trained.steps.resize(values.size());
      for (std::size_t u = 0; u < values.size(); ++u) trained.steps[u] += StrCat(values[u], " ");
    }
    return trained;
  }

  std::function<void(int rank, std::int64_t update)> look_;  // at the first question of an update

  // Counts updates by their first question. The last of an epoch, the 8th, has one micro-step: no
  // question.
  class StopThere : public StopAgreement {
   public:
    StopThere(Communicator& comm, const ResumeTest& test, Place place, std::int64_t first)
        : StopAgreement(comm, {.checkpoints = true}),
          rank_(comm.rank()),
          test_(test),
          place_(place),
          update_(first) {}
    Result<StopDecision> BetweenMicroSteps(std::int64_t done, std::int64_t) override {
      if (done <= last_done_) update_ += (update_ + 2) % 8 == 0 ? 2 : 1;
      last_done_ = done;
      if (done == 1 && test_.look_) test_.look_(rank_, update_ + 1);
      if (update_ + 1 != place_.update || done != place_.done) return StopDecision{};
      const StopDecision decision{.action = place_.action, .reason = "the test"};
      if (!place_.at_boundary) return decision;
      here_ = decision;
      return StopDecision{};
    }
    Result<StopDecision> BetweenBatches(std::int64_t done, std::int64_t) override {
      if (done == 1) ++evaluations_;
      if (evaluations_ == place_.evaluation) here_ = {StopAction::kSaveStop, {}, "the test"};
      return here_;
    }
    [[nodiscard]] StopDecision AtBoundary() const override { return here_; }
    [[nodiscard]] int evaluations() const { return evaluations_; }

   private:
    int rank_;
    const ResumeTest& test_;
    Place place_;
    StopDecision here_;
    int evaluations_ = 0;
    std::int64_t update_;
    std::int64_t last_done_ = 0;
  };

  // begun: the training begins anew, with this --resume.
  void EndBeforeTheFirstSave(const std::string& begun = "") {
    const auto comm = MakeSingle();
    auto lease =
        CheckpointWriter::Claim(*comm, {.folder = ckpt()}, MakeOwnerName(job_id_, restarts_));
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    if (begun.empty()) return;
    ASSERT_TRUE(lease->BeginTraining(begun).ok());
  }

  [[nodiscard]] std::string ckpt() const { return folder_ + "/ckpt"; }
  [[nodiscard]] std::string CheckpointPath(std::int64_t step) const {
    return ckpt() + "/" + Generation{.epoch = 1, .step = step}.name();
  }

  const TempFolder temp_;
  const std::string folder_ = temp_.path();
  int runs_ = 0;
  int ranks_per_node_ = 0;  // all
  TrainGuards guards_;
  std::vector<double> speeds_;  // by rank
  LoadChanges loads_;
  std::function<std::unique_ptr<Dataset>(int rank)> data_;  // in place of the job's
  std::int64_t keep_ = 100;                                 // checkpoints
  std::string job_id_ = "test";
  int restarts_ = 0;
};

}  // namespace gaccd::tests
