// TrainingRun: `gaccd train` on one rank, stage by stage.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "daemon/checkpoint/writer.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/launch/session.h"
#include "daemon/plan/plan.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/rundir/verdict_guard.h"
#include "daemon/stop/clocks.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/stop/stop_signals.h"
#include "daemon/train/rank_status.h"
#include "daemon/train/run_checkpointer.h"
#include "daemon/train/trainer.h"
#include "daemon/train/training.h"
#include "daemon/weights/weights.h"

namespace gaccd {

class TrainingRun {
 public:
  // guard: of rank 0, or null. All of it outlives the run.
  TrainingRun(const Flags& flags, Session& session, VerdictGuard* guard, StopSignals* signals)
      : flags_(flags), session_(session), comm_(session.comm), guard_(guard), signals_(signals) {}

  // All of it, from the job that this rank has read. Collective.
  RankStatus Run(Result<Job> job);

 private:
  using Stage = RankStatus (TrainingRun::*)();
  // One after the other, until one fails.
  RankStatus RunStages(std::initializer_list<Stage> stages);

  // Without the run folder. The plan is that of this number of ranks.
  RankStatus MakePlan(Result<Job> job);
  // Makes the job independent of the current folder: absolute paths of data, and the names of the
  // classes from the data. kData where data.train and data.eval disagree.
  RankStatus ResolveJob();
  // Whether the run is complete or was stopped for good.
  RankStatus CheckFolder();

  // First the ownership of the run folder: a rank that cannot get it exits at once, before it opens
  // data, and the owner always writes a verdict there.
  RankStatus RunInFolder();
  // An exception that ended the start would leave no verdict but an internal error.
  RankStatus TrainWithinMemory();

  // From the folder to the first update.
  RankStatus CompareClocks();
  // Of the checkpoint folder. Before the resume point is looked for: a run that ends just now has
  // then committed its last checkpoint, or commits no more.
  RankStatus AcquireLease();
  RankStatus CheckSaveWeights();
  RankStatus RemoveDoneMarker();
  RankStatus OpenData();  // and builds the model; may take long
  RankStatus SelectDevice();
  // With --micro-batch=auto: the final plan. Until then it is the one in one micro-step.
  RankStatus ChooseMicroBatch();
  RankStatus MakeTrainer();
  RankStatus LoadInitWeights();
  // Restores the newest checkpoint of --resume, if any. An attempt that SLURM requeued resumes from
  // its own checkpoints whatever --resume says: that flag is for the first attempt.
  RankStatus Resume();

  RankStatus Train();
  Status ResumeOnRank();
  // Notes in the checkpoint folder that a new training begins there, if one does and saves, and
  // warns of the checkpoints of the one before.
  Status BeginTraining(const ResumeSource& source, const ResumePoint& point);
  // Saves nothing without checkpoints.
  Result<std::unique_ptr<RunCheckpointer>> StartCheckpointer();
  // What the run prints before its first update, and on rank 0 warnings about likely mistakes.
  void Announce() const;
  void WarnOfMistakes(bool saves) const;
  [[nodiscard]] RunStart StartRecord() const;
  [[nodiscard]] TrainerOptions OptionsOfTrainer();
  // On rank 0: --save-weights and the marker of a complete run.
  Status WriteResults(const TrainingSummary& summary, const RunCheckpointer& checkpointer,
                      std::vector<float> final_parameters, const TickFunction& tick);
  // The path of the checkpoint that holds the state after `updates` updates: the last that was
  // saved, or the one that the run continued from. Empty: there is none.
  [[nodiscard]] std::string CheckpointAfter(std::int64_t updates,
                                            const RunCheckpointer& checkpointer) const;
  // What it prints at its end.
  void Conclude(const TrainingSummary& summary) const;

  const Flags& flags_;
  Session& session_;
  Communicator& comm_;
  VerdictGuard* const guard_;
  StopSignals* const signals_;

  Job job_;
  std::optional<Plan> plan_;
  std::string memory_limit_;   // of --micro-batch=auto, for people
  bool is_complete_ = false;   // there is nothing to do
  bool was_complete_ = false;  // and is given more updates
  std::unique_ptr<RunReporter> reporter_;
  std::optional<Clocks> clocks_;
  std::optional<CheckpointLease> lease_;  // until the checkpointer has it
  double checkpoint_bytes_ = 0;           // over all ranks
  std::optional<TrainingInputs> inputs_;  // until the trainer has them
  std::optional<StopAgreement> stops_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<WeightsReport> init_weights_;  // of --init-weights, on rank 0
  std::vector<std::string> resume_notes_;      // how it resumes, changes of the job
  std::optional<ResumeRecord> resumed_;        // what the run continues from
};

}  // namespace gaccd
