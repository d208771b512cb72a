// Trainer: one rank of a run. Made after the ranks found each other; owns its data, model and
// engine.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/config/policies.h"
#include "daemon/data/dataset.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/model/model.h"
#include "daemon/plan/plan.h"
#include "daemon/program/step_program.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/train/engine_ring.h"
#include "daemon/train/evaluator.h"
#include "daemon/train/nonfinite.h"
#include "daemon/train/peer_watch.h"
#include "daemon/train/phase_notes.h"
#include "daemon/train/rank_times.h"
#include "daemon/train/saver.h"
#include "daemon/train/training.h"

namespace gaccd {

class Trainer {
 public:
  // Checks the model and the schedule with data that was opened. Local: a rank may fail alone, so
  // the caller lets all ranks agree on the result before the collective Prepare(). `plan` is of
  // this world: plan.world() == comm.size(). `comm` must outlive the trainer.
  static Result<std::unique_ptr<Trainer>> Open(Communicator& comm, const Job& job, const Plan& plan,
                                               TrainingData data);
  // Opens the job's data as well, on this rank alone.
  static Result<std::unique_ptr<Trainer>> Open(Communicator& comm, const Job& job, const Plan& plan,
                                               const BadRecordRules& bad_records = {});

  // Prepares every executor and allocates all memory, on the device that was chosen. Collective.
  // device_comm reduces the gradients (MakeNccl() for GPUs) and must outlive the trainer; null: the
  // communicator of Open(). kConfig when the job's numerics are not for this device.
  Status Prepare(const EngineChoice& choice = {}, Communicator* device_comm = nullptr);

  // Loads weights before Run(), or saves the parameters as they are. safetensors.
  Status LoadWeights(const std::string& path);
  Status SaveWeights(const std::string& path, unsigned mode);

  // Goes on where a checkpoint stands, which was accepted for saved_run(): parameters, optimiser,
  // next update. Before Run(), after Prepare(). Of a checkpoint inside an update the same
  // micro-steps go on where ranks and micro-batches are the same; else that update is begun again.
  Status Resume(const LoadedState& state);
  // What checkpoints of this training refer to. Valid as long as this object.
  [[nodiscard]] SavedRun saved_run() const { return {job_, plan_, model_, train_->size()}; }
  [[nodiscard]] std::int64_t first_update() const { return first_update_; }

  // Trains to the end of the schedule, and saves at the boundaries `saver` wants (null: never) and
  // at the end. Collective. `summary` is kept up to date, also on errors. kTempFail, kNoRequeue or
  // kInterrupted, on all ranks alike: stopped as SetStops() says.
  Status Run(RunReporter& reporter, TrainingSummary* summary, Saver* saver = nullptr);

  // Tells `watch` what this rank does, so that a stuck one can be told from a slow one. null: none.
  void SetPeerWatch(PeerWatch* watch) { notes_.peers = watch; }
  // Asks `stops` whether to go on. null: nothing stops the run.
  void SetStops(StopAgreement* stops) { stops_ = stops; }
  // Before Prepare().
  void SetGuards(const TrainGuards& guards) { guards_ = guards; }

  // The parameters as they are, in the order of model().layout(). REQUIRES: after Prepare().
  Result<std::vector<float>> Parameters();
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] const MemoryUse& memory() const { return memory_; }
  void PlanMemoryOf(const Saver& saver) {
    memory_.planned += static_cast<std::int64_t>(saver.memory_bytes());
  }
  [[nodiscard]] const UpdateSchedule& schedule() const { return schedule_; }
  [[nodiscard]] std::int64_t train_samples() const { return train_->size(); }
  // Damaged records: those of the training data are replaced, those of the evaluation left out.
  [[nodiscard]] std::span<const BadRecord> bad_records() const { return train_->bad_records(); }
  [[nodiscard]] std::span<const BadRecord> bad_eval_records() const {
    return eval_ ? eval_->bad_records() : std::span<const BadRecord>();
  }
  [[nodiscard]] std::int64_t eval_samples() const { return eval_ ? eval_->size() : 0; }

 private:
  Trainer(Communicator& comm, const Job& job, const Plan& plan, TrainingData data, Model model,
          const UpdateSchedule& schedule);
  [[nodiscard]] Result<ReplicaOptions> MakeReplicaOptions();
  Status PrepareBatches();
  // Which samples this rank takes from update `update` (from 0) on.
  [[nodiscard]] Result<TrainIndices> IndicesFrom(std::int64_t update) const;
  // Starts update `index`; its result may come later.
  Status RunOne(std::int64_t index);
  // Waits for the result of the oldest update on the way.
  Status ReportOldest(RunReporter& reporter, TrainingSummary* summary);
  Status ReportUntil(std::size_t in_flight, RunReporter& reporter, TrainingSummary* summary);
  // This rank's part of the control words of the update that is about to be reduced.
  void PackControlWords(std::int64_t micro_steps);
  // false: left, as the ranks were asked to stop and there was no time for it.
  Result<bool> Evaluate(std::int64_t step, RunReporter& reporter, TrainingSummary* summary);
  // What the ranks were asked for, as of the last update.
  [[nodiscard]] StopDecision Decision() const {
    return stops_ == nullptr ? StopDecision{} : stops_->AtBoundary();
  }
  // After an update on whose control words the times of the ranks came.
  void FindStraggler(const UpdateResult& found, StepRecord* record);
  Result<bool> LeaveWindow(std::int64_t done, std::int64_t steps);
  // What a checkpoint inside update first_update() + 1 holds of it, on this rank.
  struct Window {
    std::int64_t micro_step = 0;  // so many are done
    std::vector<float> accumulators;
    WindowShare share;
  };
  // Takes it where the same micro-steps go on; else says that they are done again.
  void TakeWindow(const LoadedState& state);
  // Waits for the last save of a complete training, and tries it again when the disk refused it.
  Status FinishSaves(const TrainingSummary& summary, Saver& saver);
  // Saves the state after the last update that ended. kNow waits for a disk that does not answer.
  enum class When : std::uint8_t { kNow, kWhenTheDiskAnswers };
  Status SaveAt(const TrainingSummary& summary, Saver& saver, When when = When::kNow);
  Status LeaveInside(std::int64_t index, RunReporter& reporter, TrainingSummary* summary,
                     Saver* saver);
  // Saves if that was decided, waits for the disk, and gives what the run ends with.
  Status StopAt(const std::string& where, const StopDecision& decision,
                const TrainingSummary& summary, Saver* saver);

  // `saved`, of a call that all ranks made: they settle the failure of a disk together.
  static Status OfAllRanks(Status saved, TrainingSummary* summary) {
    if (!saved.ok() && saved.kind() == ErrorKind::kIo) summary->failed_together = true;
    return saved;
  }
  // `saved`; but when a save or the wait for it was given up (kInterrupted), as a rank was asked
  // twice, nothing waits for the disk any more, and the run ends with `kind`.
  Status GiveUpIfAsked(Status saved, const std::string& where, ErrorKind kind, Saver& saver);
  // Whether the state after update `step` is to be saved. Collective.
  Result<bool> SaveIsDue(std::int64_t step, Saver* saver) const;

  // An update that the engine has begun and whose result was not told yet.
  struct InFlight {
    std::int64_t step = 0;  // from 1
    std::int64_t micro_steps = 1;
    std::int64_t restored = 0;  // of them, by an attempt before
    Update update;
    double lr = 0;
  };

  // trainer_guards.cc: all collective.
  // All ranks read the same data, and the same records of it are damaged.
  Status CheckSameRecords();
  // The data sets are what they were when they were opened, for all ranks.
  Status CheckDataUnchanged();
  // The error of an update, with who made it not finite.
  Status Explain(const InFlight& done, Status error);
  // After an update that was not finite: goes on without it, or without what made it so.
  Status ContinueAfterNonfinite(const InFlight& done, UpdateResult* found);
  Result<SharedOffenders> FindOffendersTogether(const InFlight& done, std::vector<Offender>* mine);
  Result<UpdateResult> RepeatWithout(const InFlight& done, const std::vector<Offender>& mine,
                                     std::int64_t samples);
  // This rank's micro-batches of an update once more.
  Result<UpdateReplay> Replay(const InFlight& done);
  // The digest of the parameters if it is due after update `step`, compared over the ranks.
  Result<std::string> CompareReplicas(std::int64_t step, TrainingSummary* summary);
  [[nodiscard]] bool ComparesAfter(std::int64_t step) const {
    return guards_.digest_every > 0 &&
           (step % guards_.digest_every == 0 || step == schedule_.updates());
  }
  [[nodiscard]] const Plan& PlanOf(const Update& update) const {
    return update.samples == plan_.effective_batch() ? plan_ : *tail_plan_;
  }
  [[nodiscard]] const StepProgram& ProgramOf(const Update& update) const {
    return update.samples == plan_.effective_batch() ? program_ : tail_program_;
  }

  Communicator& comm_;
  std::optional<Window> window_;
  PhaseNotes notes_;
  StopAgreement* stops_ = nullptr;
  TrainGuards guards_;
  RankTimes times_;
  std::vector<double> control_words_;  // kStopWordCount, then those of times_
  std::int64_t nonfinite_ = 0;         // updates in a row
  std::optional<StopDecision> left_;   // the window that was begun
  std::int64_t left_after_ = 0;        // micro-steps of it
  Job job_;
  Plan plan_;
  std::optional<Plan> tail_plan_;  // of the smaller updates
  StepProgram program_;
  StepProgram tail_program_;
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> eval_;
  Model model_;
  UpdateSchedule schedule_;
  std::optional<Evaluator> evaluator_;  // with evaluation data
  MemoryUse memory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Prefetcher> batches_;  // may use memory of the engine
  EngineRing ring_;
  EngineRing replay_ring_;
  std::deque<InFlight> in_flight_;  // the oldest first
  std::int64_t first_update_ = 0;
  std::int64_t first_samples_ = 0;  // that the updates before it took
  bool evaluates_first_ = false;    // before it
};

}  // namespace gaccd
