// RunCheckpointer: when a training saves, what, and how it stops: at the boundaries that SaveClock
// gives, where the ranks are asked to (StopAgreement), and at the end. CheckpointWriter writes.
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
#include "daemon/engine/step_program.h"
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
  std::function<void(const SaveRecord&)> on_save;  // on rank 0, after a save; may be empty
};

// One per rank, on the training thread. Collective, but where it is said.
class RunCheckpointer {
 public:
  // Saves nothing; the ranks stop all the same.
  explicit RunCheckpointer(Communicator& comm) : RunCheckpointer(comm, {}, 0) {}
  // `lease`: to write in the folder, claimed before the run looked for what it can continue from.
  // `step`: updates done so far. What `run` refers to and `engine` outlive the checkpointer.
  static Result<std::unique_ptr<RunCheckpointer>> Start(Communicator& comm, const SavedRun& run,
                                                        Engine& engine,
                                                        const CheckpointerOptions& options,
                                                        CheckpointLease lease, std::int64_t step);
  // Local, before the first update. stops null: nothing stops the run. `summary` says what was done
  // when something is saved. All of it outlives what follows.
  void BeginRun(StopAgreement* stops, const ProgressNotifier* progress, TrainingSummary* summary);

  // The plan of SavedRun has changed, between two updates. Local.
  void PlanChanged() {
    if (saves()) writer_->SetPlan(run_->plan);
  }
  // Local. restored: micro-steps of the update that an attempt before has done.
  void BeginUpdate(std::int64_t restored);
  // At position `done` of the program of update `index` (from 0). true: the update is interrupted
  // there.
  Result<bool> LeavesUpdate(std::int64_t index, std::int64_t done, const StepProgram& program);
  [[nodiscard]] bool left_update() const { return left_.has_value(); }
  // What the ranks were asked for, as of the last update. Local.
  [[nodiscard]] StopDecision decision() const {
    return stops_ == nullptr ? StopDecision{} : stops_->AtBoundary();
  }
  // Whether the state after update `step` is to be saved: it is the last one, or due by the clock,
  // or there was no room for it before.
  Result<bool> SaveIsDue(std::int64_t step, bool last);
  // After update `step`: polls the saves under way and saves, if it is due or was requested. Where
  // two saves are under way and a disk does not answer, the save is postponed, unless this very
  // state is to be kept: `must`. REQUIRES: no other update is under way, as for all that saves.
  Status AtBoundary(std::int64_t step, bool save, bool must);
  // Of the saves under way, where nothing is saved.
  Status Poll() { return saves() ? writer_->Poll() : Status::Ok(); }
  // At the end of a complete training: waits for the last save, and tries it again when the disk
  // refused it, up to options.fail_limit times in a row.
  Status Finish();

  // Saves if that was decided, waits for the disk, and gives what the run ends with. where: "after
  // update 12".
  Status Stop(const std::string& where, const StopDecision& decision);
  // The same inside the update that was interrupted. Parameters and optimiser are still those of
  // the update before; the accumulators hold a part of this one, and are saved with what each rank
  // counted. A window whose loss is not finite is left out.
  Status StopInside();
  // Leaves without waiting for the disk: CheckpointWriter::Abandon(). Local.
  void Abandon() {
    if (saves()) writer_->Abandon();
  }

  [[nodiscard]] bool saves() const { return writer_ != nullptr; }
  // The newest that is known to be committed by this checkpointer.
  [[nodiscard]] const std::optional<Generation>& last_saved() const { return last_saved_; }
  // Staging memory of this rank.
  [[nodiscard]] std::size_t memory_bytes() const { return saves() ? writer_->staging_bytes() : 0; }

 private:
  enum class When : std::uint8_t { kNow, kWhenTheDiskAnswers };
  struct Window {
    std::int64_t index = 0;  // the update, from 0
    std::int64_t done = 0;   // position in its program: micro-steps, where it continues
    std::string place;       // the same for people
    StopDecision decision;
  };

  RunCheckpointer(Communicator& comm, SavePolicy policy, std::int64_t step)
      : comm_(comm), clock_(policy, step) {}
  Status Save(When when = When::kNow);
  Status SaveWindow(std::int64_t micro_step);
  [[nodiscard]] RunCursor Cursor() const;
  Status FinishOrTryAgain();
  // `saved`; but when a save or the wait for it was given up (kInterrupted), as a rank was asked
  // twice, nothing waits for the disk any more, and the run ends with `kind`.
  Status GiveUpIfAsked(Status saved, const std::string& where, ErrorKind kind);
  // `saved`, of a call that all ranks made: they settle the failure of a disk together.
  Status OfAllRanks(Status saved) const;
  void OnSave(const SaveEvent& event);
  [[nodiscard]] SaveRecord Record(const SaveEvent& event) const;

  Communicator& comm_;
  StopAgreement* stops_ = nullptr;
  const ProgressNotifier* progress_ = nullptr;
  TrainingSummary* summary_ = nullptr;
  std::optional<Window> left_;

  SaveClock clock_;
  bool postponed_ = false;
  // Of the last save: how long it would have taken had nobody waited for boundaries, on the slowest
  // rank: copy, write and commit. 0: there was none.
  double last_save_s_ = 0;
  double window_ratio_ = 1;  // bytes that a rank writes with a window / without; of all ranks
  std::optional<Generation> last_saved_;
  std::int64_t failed_in_row_ = 0;

  // With checkpoints.
  std::optional<SavedRun> run_;
  Engine* engine_ = nullptr;
  CheckpointerOptions options_;
  std::vector<BufferSource> sources_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace gaccd
