// CheckpointAndStop: where a training saves, and how it exits after a request to stop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/base/result.h"
#include "daemon/program/step_program.h"
#include "daemon/stop/stop_agreement.h"
#include "daemon/train/checkpointer.h"
#include "daemon/train/progress_notifier.h"
#include "daemon/train/training.h"

namespace gaccd {

// One per Run(). All but decision() and left_update() are collective.
class CheckpointAndStop {
 public:
  // stops null: nothing stops the run; checkpointer null: nothing is saved. `summary` says what was
  // done when something is saved. All of it outlives this.
  CheckpointAndStop(StopAgreement* stops, Checkpointer* checkpointer,
                    const ProgressNotifier& progress, TrainingSummary* summary)
      : stops_(stops), checkpointer_(checkpointer), progress_(progress), summary_(summary) {}

  // Local. restored: micro-steps of the update that an attempt before has done.
  void BeginUpdate(std::int64_t restored);
  // At position `done` of the program of update `index` (from 0). true: the update is interrupted
  // there.
  Result<bool> LeavesUpdate(std::int64_t index, std::int64_t done, const StepProgram& program);
  [[nodiscard]] bool left_update() const { return left_.has_value(); }

  // What the ranks were asked for, as of the last update.
  [[nodiscard]] StopDecision decision() const {
    return stops_ == nullptr ? StopDecision{} : stops_->AtBoundary();
  }
  // Whether the state after update `step` is to be saved. `last`: it is the last one.
  Result<bool> SaveIsDue(std::int64_t step, bool last);
  // After update `step`: polls the saves under way and saves, if it is due or was requested.
  // A disk that does not answer postpones the save, but not the last one.
  Status AtBoundary(std::int64_t step, bool save, bool last);
  // At the end of a complete training: waits for the last save, and tries it again when the disk
  // refused it.
  Status Finish();

  // Saves if that was decided, waits for the disk, and gives what the run ends with. where: "after
  // update 12".
  Status Stop(const std::string& where, const StopDecision& decision);
  // The same inside the update that was interrupted. Parameters and optimiser are still those of
  // the update before; the accumulators hold a part of this one.
  Status StopInside();

 private:
  enum class When : std::uint8_t { kNow, kWhenTheDiskAnswers };
  Status Save(When when = When::kNow);
  Status FinishOrTryAgain();
  // `saved`; but when a save or the wait for it was given up (kInterrupted), as a rank was asked
  // twice, nothing waits for the disk any more, and the run ends with `kind`.
  Status GiveUpIfAsked(Status saved, const std::string& where, ErrorKind kind);
  // `saved`, of a call that all ranks made: they settle the failure of a disk together.
  Status OfAllRanks(Status saved) const;

  struct Window {
    std::int64_t index = 0;  // the update, from 0
    std::int64_t done = 0;   // micro-steps of it
    StopDecision decision;
  };

  StopAgreement* stops_;
  Checkpointer* checkpointer_;
  const ProgressNotifier& progress_;
  TrainingSummary* summary_;
  std::optional<Window> left_;
};

}  // namespace gaccd
