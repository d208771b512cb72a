// Trainer: one rank of a training, created after the ranks are connected. Owns data, model and
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
#include "daemon/train/consistency.h"
#include "daemon/train/control_words.h"
#include "daemon/train/nonfinite_handler.h"
#include "daemon/train/rebalancer.h"
#include "daemon/train/run_checkpointer.h"
#include "daemon/train/start_point.h"
#include "daemon/train/training.h"

namespace gaccd {

struct TrainerOptions {
  TrainGuards guards = {};
  EngineChoice choice = {};
  // Communicator that reduces the gradients (MakeNccl() for GPUs); must outlive the trainer; null:
  // the communicator of Make().
  Communicator* device_comm = nullptr;
  LoadChanges loads = {};
};

class Trainer {
 public:
  // Prepares every executor and allocates all memory on the selected device. Collective. kConfig if
  // the device does not support the job's numerics. `comm` must outlive the trainer.
  static Result<std::unique_ptr<Trainer>> Make(Communicator& comm, TrainingInputs inputs,
                                               const TrainerOptions& options = {});

  // Call before Run(): continues from a checkpoint that was accepted for saved_run(). Inside an
  // update, the same micro-steps continue if ranks and micro-batches are the same; otherwise the
  // update restarts. If loads may change, they are those of the checkpoint if its ranks ran on the
  // same hosts; otherwise rank 0 warns why not. in_own_folder: the checkpoint is one of the folder
  // in which this run saves; otherwise, or if it was inside an update, Run() also saves a state
  // that must be kept there: that of a complete run, or the best.
  Status Resume(const LoadedState& state, bool in_own_folder);
  // References for the checkpoints of this training. Valid as long as this object.
  [[nodiscard]] SavedRun saved_run() const {
    const LossScaleState* const loss_scale = loss_scale_ ? &loss_scale_->state() : nullptr;
    return {inputs_.job,   inputs_.plan, inputs_.model, inputs_.data.train->size(),
            best_.state(), loss_scale,   content_};
  }
  [[nodiscard]] std::int64_t first_update() const { return start_.updates; }
  [[nodiscard]] const LabelCounts& labels() const { return inputs_.labels; }
  [[nodiscard]] const LabelCounts& eval_labels() const { return inputs_.eval_labels; }
  // The best evaluation so far, including those before Resume()'s checkpoint.
  [[nodiscard]] std::optional<BestValue> best() const { return best_.best(); }

  // Reports the phase of this rank to `watch`, so that stuck ranks can be distinguished from slow
  // ones. null: none.
  void SetPeerWatch(PeerWatch* watch) { progress_.peers = watch; }
  // `stops` decides after each update whether the run continues. null: nothing stops it.
  void SetStops(StopAgreement* stops) { stops_ = stops; }
  // Trains to the end of the schedule, or until the job's patience has run out, and saves at the
  // boundaries of `checkpointer` (null: never) and at the end. Collective. `summary` is kept up to
  // date, also on errors. kTempFail, kNoRequeue or kInterrupted, on all ranks: stopped by
  // SetStops().
  Status Run(RunReporter& reporter, TrainingSummary* summary,
             RunCheckpointer* checkpointer = nullptr);

  // The current parameters, in the order of model().layout(). Collective in a pipeline.
  Result<std::vector<float>> Parameters();
  // The trained weights to save: the averages if the job has optimizer.ema. Collective.
  Result<std::vector<float>> FinalParameters();
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] const Model& model() const { return inputs_.model; }
  [[nodiscard]] const TrainingData& data() const { return inputs_.data; }
  [[nodiscard]] const Plan& plan() const { return inputs_.plan; }  // for the next update
  [[nodiscard]] const UpdateSchedule& schedule() const { return inputs_.schedule; }
  [[nodiscard]] const MemoryUse& memory() const { return memory_; }
  void AddPlannedMemory(const RunCheckpointer& checkpointer) {
    memory_.planned += static_cast<std::int64_t>(checkpointer.memory_bytes());
  }

 private:
  Trainer(Communicator& comm, TrainingInputs inputs, const TrainerOptions& options);
  Status Prepare(const EngineChoice& choice, Communicator& device_comm);
  // Whether the run ends after update `step`: it is the last one, or the job's patience has run
  // out.
  [[nodiscard]] bool IsComplete(std::int64_t step) const;
  // Evaluates and saves at the start what an earlier attempt has not. Returns whether the run is
  // complete.
  Result<bool> FinishStart(RunReporter& reporter, TrainingSummary* summary,
                           RunCheckpointer& control);
  // Begins update `index`; its result may be available later.
  Status Begin(std::int64_t index, RunCheckpointer& control);
  // Waits for the result of the oldest update in flight and reports it.
  Status ReportOldest(RunReporter& reporter, TrainingSummary* summary);
  Status ReportUntil(int in_flight, RunReporter& reporter, TrainingSummary* summary);
  // updates: done so far, fewer than planned.
  [[nodiscard]] std::string EarlyStopReason(std::int64_t updates) const;
  // NonfiniteHandler::CheckParameters() after update `step`, with none in flight. On its error the
  // saves in progress, of intact parameters, are finished.
  Status CheckParameters(std::int64_t step, RunCheckpointer& control);
  [[nodiscard]] bool EvaluatesAfter(std::int64_t step) const;
  // Whether the evaluation after update `step` is the best so far and its weights must be saved.
  [[nodiscard]] bool KeepsBest(std::int64_t step) const;
  // Restores the speeds of a checkpoint, if its run had any.
  Status RestoreLoads(const Manifest& saved);
  // Adds the times of the latest update; keeps a better plan for ChangeLoads().
  void MeasureLoads();
  // Reports the stage of the job's target_schedule of update `step`, counted from 0.
  void ReportTarget(std::int64_t step, RunReporter& reporter);
  void ReportNoise(const UpdateInFlight& done, const GradientNoise& found, RunReporter& reporter);
  // After update `step`, with none in flight: applies the loads of next_plan_ to the next one.
  Status ChangeLoads(std::int64_t step, RunCheckpointer& control, RunReporter& reporter);
  // Reports new retries of the engine. restored: micro-steps of the update that were in a
  // checkpoint.
  void ReportAllocationRetries(std::int64_t restored);
  // Collective, at the end.
  Status SumAllocationRetries(TrainingSummary* summary);
  // After update `step`. Returns false if it was aborted, as the ranks were asked to stop and there
  // was no time for it.
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
  // refers to inputs_, as does evaluator_: may use memory of the engine
  BatchFeed feed_;
  std::optional<Evaluator> evaluator_;  // set if there is evaluation data
  DataContent content_;
  BestEvaluation best_;
  std::optional<LossScale> loss_scale_;  // set for fp16
  std::optional<ReplicaCheck> replicas_;
  std::optional<NonfiniteHandler> nonfinite_;
  std::optional<Rebalancer> rebalancer_;
  std::optional<BetterPlan> next_plan_;
  std::int64_t loads_since_ = 0;  // the first update (from 0) with these loads
  std::size_t reported_retries_ = 0;
  NoiseScale noise_;
  StartPoint start_;
  std::deque<UpdateInFlight> in_flight_;  // oldest first
};

}  // namespace gaccd
