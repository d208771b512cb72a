// Trainer: one rank of a training. Made after the ranks found each other; owns data, model and
// engine, and runs the loop over the updates.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/noise_scale.h"
#include "daemon/eval/best_evaluation.h"
#include "daemon/eval/evaluator.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/control_words.h"
#include "daemon/train/loss_scale.h"
#include "daemon/train/nonfinite_handler.h"
#include "daemon/train/rebalancer.h"
#include "daemon/train/replica_check.h"
#include "daemon/train/run_checkpointer.h"
#include "daemon/train/start_point.h"
#include "daemon/train/training.h"

namespace gaccd {

// What is known of a training on one rank before its device is.
struct TrainingInputs {
  // Checks the model and the schedule with data that was opened. Local: a rank may fail alone, so
  // the caller lets all ranks agree on the result before the collective Trainer::Make(). `plan`
  // belongs to this world: plan.world() == comm.size(). `comm` outlives the inputs.
  static Result<TrainingInputs> Make(Communicator& comm, const Job& job, const Plan& plan,
                                     TrainingData data);
  // Opens the job's data as well, on this rank alone.
  static Result<TrainingInputs> Open(Communicator& comm, const Job& job, const Plan& plan,
                                     const BadRecordRules& bad_records = {});

  // Of one checkpoint, over all ranks.
  [[nodiscard]] double checkpoint_bytes() const;

  Job job;
  Plan plan;
  TrainingData data;
  Model model;
  UpdateSchedule schedule;
  BatchFeed feed;
  std::optional<Evaluator> evaluator;  // with evaluation data
  Better better = Better::kSmaller;    // of the values of evaluation.metric
  // Training samples of which no label counts. An update of such samples alone is skipped.
  std::int64_t unlabelled = 0;
};

struct TrainerOptions {
  TrainGuards guards = {};
  EngineChoice choice = {};
  // Reduces the gradients (MakeNccl() for GPUs) and outlives the trainer; null: the communicator of
  // all.
  Communicator* device_comm = nullptr;
  LoadChanges loads = {};
};

class Trainer {
 public:
  // Prepares every executor and allocates all memory, on the device that was chosen. Collective.
  // kConfig when the job's numerics are not for this device. `comm` outlives the trainer.
  static Result<std::unique_ptr<Trainer>> Make(Communicator& comm, TrainingInputs inputs,
                                               const TrainerOptions& options = {});

  // Before Run(): continues from a checkpoint that was accepted for saved_run(). Of a checkpoint
  // inside an update the same micro-steps continue where ranks and micro-batches are the same; else
  // that update is begun again. Where loads may change, they are those of the checkpoint if its
  // ranks ran on the same hosts; else a warning of rank 0 says why not.
  Status Resume(const LoadedState& state);
  // What checkpoints of this training refer to. Valid as long as this object.
  [[nodiscard]] SavedRun saved_run() const {
    const LossScaleState* const loss_scale = loss_scale_ ? &loss_scale_->state() : nullptr;
    return {inputs_.job,   inputs_.plan, inputs_.model, inputs_.data.train->size(),
            best_.state(), loss_scale,   content_};
  }
  [[nodiscard]] std::int64_t first_update() const { return start_.updates; }
  [[nodiscard]] std::int64_t unlabelled() const { return inputs_.unlabelled; }
  // The best evaluation so far, also before Resume()'s checkpoint.
  [[nodiscard]] std::optional<BestValue> best() const { return best_.best(); }

  // Passes the phase of this rank to `watch`, so that a stuck one can be distinguished from a slow
  // one. null: none.
  void SetPeerWatch(PeerWatch* watch) { progress_.peers = watch; }
  // Asks `stops` whether to continue. null: nothing stops the run.
  void SetStops(StopAgreement* stops) { stops_ = stops; }
  // Trains to the end of the schedule, or until the job's patience is over, and saves at the
  // boundaries `checkpointer` wants (null: never) and at the end. Collective. `summary` is kept up
  // to date, also on errors. kTempFail, kNoRequeue or kInterrupted, on all ranks alike: stopped as
  // SetStops() says.
  Status Run(RunReporter& reporter, TrainingSummary* summary,
             RunCheckpointer* checkpointer = nullptr);

  // The parameters as they are, in the order of model().layout(). Collective in a pipeline.
  Result<std::vector<float>> Parameters();
  // What is saved as the trained weights: their averages where the job has optimizer.ema.
  // Collective.
  Result<std::vector<float>> FinalParameters();
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] const Model& model() const { return inputs_.model; }
  [[nodiscard]] const TrainingData& data() const { return inputs_.data; }
  [[nodiscard]] const Plan& plan() const { return inputs_.plan; }  // of the next update
  [[nodiscard]] const UpdateSchedule& schedule() const { return inputs_.schedule; }
  [[nodiscard]] const MemoryUse& memory() const { return memory_; }
  void PlanMemoryOf(const RunCheckpointer& checkpointer) {
    memory_.planned += static_cast<std::int64_t>(checkpointer.memory_bytes());
  }

 private:
  Trainer(Communicator& comm, TrainingInputs inputs, const TrainerOptions& options);
  Status Prepare(const EngineChoice& choice, Communicator& device_comm);
  // Begins update `index`; its result may come later.
  Status Begin(std::int64_t index, RunCheckpointer& control);
  // Waits for the result of the oldest update in flight, and reports it.
  Status ReportOldest(RunReporter& reporter, TrainingSummary* summary);
  Status ReportUntil(int in_flight, RunReporter& reporter, TrainingSummary* summary);
  [[nodiscard]] bool EvaluatesAfter(std::int64_t step) const;
  // Whether the evaluation after update `step` is the best so far, and its weights are to be saved.
  [[nodiscard]] bool KeepsBest(std::int64_t step) const;
  // The micro-steps of the model wait for no other rank.
  [[nodiscard]] bool TimesSaySpeed() const;
  // kConfig, on all ranks alike, where the loads of this training cannot change.
  [[nodiscard]] Status PrepareForOtherLoads();
  // Takes the speeds of a checkpoint, if its run had any.
  Status RestoreLoads(const Manifest& saved);
  // Takes the times of the newest update; a better plan is kept for ChangeLoads().
  void MeasureLoads();
  // Where a stage of the job's target_schedule begins after update `step`.
  void ReportNewTarget(std::int64_t step, RunReporter& reporter);
  // kConfig where job.noise_scale_every asks for what this engine or this loss does not give.
  [[nodiscard]] Status CheckNoiseScale() const;
  void ReportNoise(const UpdateInFlight& done, const GradientNoise& found, RunReporter& reporter);
  // After update `step`, none is under way: the next one has the loads of next_plan_.
  Status ChangeLoads(std::int64_t step, RunCheckpointer& control, RunReporter& reporter);
  // Of the engine, as they come: `restored` micro-steps of the update were in a checkpoint.
  void ReportAllocationRetries(std::int64_t restored);
  // Collective, at the end.
  Status SumAllocationRetries(TrainingSummary* summary);
  // After update `step`. false: left, as the ranks were asked to stop and there was no time for it.
  Result<bool> Evaluate(std::int64_t step, RunReporter& reporter, TrainingSummary* summary);

  Communicator& comm_;
  TrainingInputs inputs_;
  TrainGuards guards_;
  LoadChanges loads_;
  MemoryUse memory_;
  ProgressNotifier progress_;
  StopAgreement* stops_ = nullptr;
  ControlWords words_;
  std::unique_ptr<Engine> engine_;
  BatchFeed feed_;                      // of inputs_, as the next: may use memory of the engine
  std::optional<Evaluator> evaluator_;  // with evaluation data
  DataContent content_;
  BestEvaluation best_;
  std::optional<LossScale> loss_scale_;  // of fp16
  std::optional<ReplicaCheck> replicas_;
  std::optional<NonfiniteHandler> nonfinite_;
  std::optional<Rebalancer> rebalancer_;
  std::optional<BetterPlan> next_plan_;
  std::int64_t loads_since_ = 0;  // the first update (from 0) with these loads
  std::size_t reported_retries_ = 0;
  NoiseScale noise_;
  StartPoint start_;
  std::deque<UpdateInFlight> in_flight_;  // the oldest first
};

}  // namespace gaccd
