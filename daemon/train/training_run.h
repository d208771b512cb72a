// TrainingRun: the stages of `gaccd train` on one rank.
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
#include "daemon/config/verb.h"
#include "daemon/launch/session.h"
#include "daemon/plan/plan.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/rundir/verdict_guard.h"
#include "daemon/stop/clocks.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/stop/stop_requests.h"
#include "daemon/train/run_checkpointer.h"
#include "daemon/train/trainer.h"
#include "daemon/train/training.h"
#include "daemon/weights/weights.h"

namespace gaccd {

class TrainingRun {
 public:
  // guard: null on ranks other than 0. All arguments must outlive the run.
  TrainingRun(const Flags& flags, Session& session, VerdictGuard* guard, StopSignals* signals)
      : flags_(flags), session_(session), comm_(session.comm), guard_(guard), signals_(signals) {}

  // Runs all stages with the job that this rank has read. Collective.
  RankStatus Run(Result<Job> job);

 private:
  using Stage = RankStatus (TrainingRun::*)();
  // Runs the stages in order until one fails.
  RankStatus RunStages(std::initializer_list<Stage> stages);

  // Does not use the run folder. The plan is for the current number of ranks.
  RankStatus MakePlan(Result<Job> job);
  // Makes the job independent of the current folder: absolute data paths, and class names from the
  // data. kData if data.train and data.eval disagree.
  RankStatus ResolveJob();
  // Checks whether the run is complete or was stopped for good.
  RankStatus CheckFolder();

  // First acquires ownership of the run folder: a rank that cannot get it exits before it opens
  // data, and the owner always writes a verdict there.
  RankStatus RunInFolder();
  // Converts exceptions during the start to errors, so that the verdict is not an internal error.
  RankStatus TrainWithinMemory();

  // From the run folder to the first update.
  RankStatus CompareClocks();
  // Acquires the lease of the checkpoint folder before the resume point is searched: a previous run
  // that is about to end has then committed its last checkpoint, or can no longer do so.
  RankStatus AcquireLease();
  RankStatus CheckSaveWeights();
  RankStatus RemoveDoneMarker();
  RankStatus OpenData();  // and builds the model; may take long
  RankStatus SelectDevice();
  // With --micro-batch=auto: the final plan. Until then the plan has one micro-step.
  RankStatus ChooseMicroBatch();
  RankStatus MakeTrainer();
  // Restores the newest checkpoint of --resume, if any. An attempt that SLURM requeued resumes from
  // its own checkpoints whatever --resume says, as that flag is for the first attempt. A training
  // that begins loads --init-weights.
  RankStatus Resume();

  RankStatus Train();
  RankStatus LoadInitWeights();
  Status FindPoint(ResumeSource* source, ResumePoint* point);
  Status ResumeOnRank(const ResumeSource& source, const ResumePoint& point);
  // If a new training begins and saves, notes it in the checkpoint folder; warns of checkpoints of
  // the previous one.
  Status BeginTraining(const ResumeSource& source, const ResumePoint& point);
  // The result saves nothing if there are no checkpoints.
  Result<std::unique_ptr<RunCheckpointer>> StartCheckpointer();
  // Prints information before the first update, and on rank 0 warnings about likely mistakes.
  void Announce() const;
  void WarnAboutMistakes(bool saves) const;
  [[nodiscard]] RunStart StartRecord() const;
  [[nodiscard]] TrainerOptions MakeTrainerOptions();
  // On rank 0: --save-weights and the marker of a complete run.
  Status WriteResults(const TrainingSummary& summary, const RunCheckpointer& checkpointer,
                      std::vector<float> final_parameters, const TickFunction& tick);
  // The path of the checkpoint with the state after `updates` updates: the last one saved, or the
  // one that the run continued from. Empty: none.
  [[nodiscard]] std::string CheckpointAfter(std::int64_t updates,
                                            const RunCheckpointer& checkpointer) const;
  // Prints the result of the run.
  void Conclude(const TrainingSummary& summary) const;

  const Flags& flags_;
  Session& session_;
  Communicator& comm_;
  VerdictGuard* const guard_;
  StopSignals* const signals_;

  Job job_;
  std::optional<Plan> plan_;
  std::string memory_limit_;   // text for --micro-batch=auto
  bool is_complete_ = false;   // nothing to do
  bool was_complete_ = false;  // complete before, now with more updates
  std::unique_ptr<RunReporter> reporter_;
  std::optional<Clocks> clocks_;
  std::optional<CheckpointLease> lease_;  // until it is passed to the checkpointer
  double checkpoint_bytes_ = 0;           // over all ranks
  std::optional<TrainingInputs> inputs_;  // until they are passed to the trainer
  std::optional<StopAgreement> stops_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<WeightsReport> init_weights_;  // of --init-weights, on rank 0
  std::vector<std::string> resume_notes_;      // how it resumes, changes of the job
  std::optional<ResumeRecord> resumed_;        // the checkpoint that the run continues from
};

// The verb `gaccd train`.
VerbOutcome RunTrain(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
