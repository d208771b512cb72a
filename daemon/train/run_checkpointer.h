// RunCheckpointer: decides when a training saves and how it stops: at the boundaries given by
// SaveClock, on requests to the ranks (StopAgreement), and at the end. CheckpointWriter writes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/writer.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/update_program.h"
#include "daemon/rundir/progress_notifier.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/telemetry/events.h"
#include "daemon/train/save_clock.h"
#include "daemon/train/start_point.h"
#include "daemon/train/training.h"

namespace gaccd {

struct CheckpointerOptions {
  CheckpointOptions checkpoints;
  SavePolicy policy;
  std::string program;                             // version and revision
  std::function<void(const SaveRecord&)> on_save;  // called on rank 0 after a save; may be empty
};

// One per rank, used by the training thread. Functions are collective unless stated otherwise.
class RunCheckpointer {
 public:
  // A checkpointer that saves nothing; ranks still stop.
  explicit RunCheckpointer(Communicator& comm) : RunCheckpointer(comm, {}, 0) {}
  // lease: the right to write in the folder, acquired before the resume point was searched. step:
  // updates done so far. The members of `run` and `engine` must outlive the checkpointer.
  static Result<std::unique_ptr<RunCheckpointer>> Start(Communicator& comm, const SavedRun& run,
                                                        Engine& engine,
                                                        const CheckpointerOptions& options,
                                                        CheckpointLease lease, std::int64_t step);
  // Local; call before the first update. stops null: nothing stops the run. `summary` must be
  // current whenever something is saved. All arguments must outlive the following calls.
  void BeginRun(StopAgreement* stops, const ProgressNotifier* progress, TrainingSummary* summary);

  // Call between two updates if the plan of SavedRun has changed. Local.
  void PlanChanged() {
    if (saves()) writer_->SetPlan(run_->plan);
  }
  // Local. restored: micro-steps of the update done by an earlier attempt.
  void BeginUpdate(std::int64_t restored);
  // At position `done` of the program of update `index` (from 0). Returns true if the update is
  // interrupted there.
  Result<bool> InterruptsUpdate(std::int64_t index, std::int64_t done,
                                const UpdateProgram& program);
  [[nodiscard]] bool interrupted_update() const { return left_.has_value(); }
  // The action that was requested up to the last update. Local.
  [[nodiscard]] StopDecision decision() const {
    return stops_ == nullptr ? StopDecision{} : stops_->AtBoundary();
  }
  // Whether the state after update `step` must be saved: it is the last one, it is due by the
  // clock, or an earlier save was postponed.
  Result<bool> SaveIsDue(std::int64_t step, bool last);
  // Call after update `step`: polls the saves in progress, and saves if it is due or requested. If
  // two saves are in progress and a disk does not respond, the save is postponed, unless `must`:
  // this state has to be kept. REQUIRES: no other update is in progress, as for all functions that
  // save.
  Status AtBoundary(std::int64_t step, bool save, bool must);
  // Collective: polls the saves in progress without saving.
  Status Poll() { return saves() ? NoteSharedFailure(writer_->Poll()) : Status::Ok(); }
  // Collective: waits for the saves in progress, and saves nothing else.
  Status FinishSaves() { return saves() ? writer_->Finish() : Status::Ok(); }
  // At the end of a complete training: waits for the last save, and retries it if the disk failed,
  // up to options.fail_limit times in a row.
  Status Finish();

  // Saves if decided, waits for the disk, and returns the final status of the run. where: "after
  // update 12".
  Status Stop(const std::string& where, const StopDecision& decision);
  // The same inside an interrupted update. Parameters and optimiser are those of the previous
  // update; the accumulators contain a part of this one, and are saved with the counts of each
  // rank. A partial update with a non-finite loss, or whose write fails, is not saved.
  Status StopInside();
  // Ends without waiting for the disk: CheckpointWriter::Abandon(). Local.
  void Abandon() {
    if (saves()) writer_->Abandon();
  }

  [[nodiscard]] bool saves() const { return writer_ != nullptr; }
  // The newest generation known to be committed by this checkpointer.
  [[nodiscard]] const std::optional<Generation>& last_saved() const { return last_saved_; }
  // Bytes of staging memory of this rank.
  [[nodiscard]] std::size_t memory_bytes() const { return saves() ? writer_->staging_bytes() : 0; }

 private:
  enum class When : std::uint8_t { kNow, kWhenTheDiskAnswers };
  struct LastBoundary {
    std::int64_t index = 0;  // index of the update
    // position in its program: number of micro-steps, if the program continues
    std::int64_t done = 0;
    std::string place;  // the same as text
    StopDecision decision;
  };

  RunCheckpointer(Communicator& comm, SavePolicy policy, std::int64_t step)
      : comm_(comm), clock_(policy, step) {}
  Status Save(When when = When::kNow);
  Status SaveAndFinish();
  Status SavePartialUpdate(std::int64_t micro_step);
  [[nodiscard]] RunCursor Cursor() const;
  Status FinishOrTryAgain();
  // Returns `saved`. But if the save or the wait for it was aborted (kInterrupted) by a second stop
  // request, nothing waits for the disk any more, and the run ends with `kind`.
  Status AbortWaitIfRequested(Status saved, const std::string& where, ErrorKind kind);
  // Returns `saved`. A failure of the disk is the same on all ranks (CheckpointWriter).
  Status NoteSharedFailure(Status saved) const;
  void OnSave(const SaveEvent& event);
  [[nodiscard]] SaveRecord Record(const SaveEvent& event) const;

  Communicator& comm_;
  StopAgreement* stops_ = nullptr;
  const ProgressNotifier* progress_ = nullptr;
  TrainingSummary* summary_ = nullptr;
  std::optional<LastBoundary> left_;

  SaveClock clock_;
  bool postponed_ = false;
  // Duration of the last save on the slowest rank without waits for boundaries: copy, write and
  // commit. 0: no save yet.
  double last_save_s_ = 0;
  // Bytes written by the last rank, which has the largest part, with a partial update / without.
  double partial_update_ratio_ = 1;
  std::optional<Generation> last_saved_;
  std::int64_t failed_in_row_ = 0;

  // Set if there are checkpoints.
  std::optional<SavedRun> run_;
  Engine* engine_ = nullptr;
  CheckpointerOptions options_;
  std::vector<BufferSource> sources_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace gaccd
