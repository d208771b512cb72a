#include "daemon/train/checkpoint_and_stop.h"

#include <chrono>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

void CheckpointAndStop::BeginUpdate(std::int64_t restored) {
  if (stops_ == nullptr) return;
  if (checkpointer_ != nullptr) {
    stops_->ExpectSave(checkpointer_->last_save_s(), checkpointer_->window_ratio());
  }
  stops_->BeginUpdate(restored);
}

Result<bool> CheckpointAndStop::LeavesUpdate(std::int64_t index, std::int64_t done,
                                             const StepProgram& program) {
  if (stops_ == nullptr) return false;
  // The ranks exchange requests now and then, and wait for each other.
  progress_.SetPhase(heartbeat::Phase::kReduce, index, done);
  GACCD_ASSIGN_OR_RETURN(const StopDecision here,
                         stops_->BetweenMicroSteps(done, program.computed));
  if (!here.stops()) return false;
  left_ = {.index = index, .done = done, .decision = here};
  if (here.action == StopAction::kSaveStop && !program.continues) {
    left_->decision.action = StopAction::kSaveBeforeStop;
  }
  return true;
}

Result<bool> CheckpointAndStop::SaveIsDue(std::int64_t step, bool last) {
  if (checkpointer_ == nullptr || last) return checkpointer_ != nullptr;
  return checkpointer_->Due(step);
}

Status CheckpointAndStop::AtBoundary(std::int64_t step, bool save, bool last) {
  if (checkpointer_ == nullptr) return Status::Ok();
  GACCD_RETURN_IF_ERROR(OfAllRanks(checkpointer_->Poll()));
  if (!save) return Status::Ok();
  return GiveUpIfAsked(OfAllRanks(Save(last ? When::kNow : When::kWhenTheDiskAnswers)),
                       StrCat("after update ", step), ErrorKind::kTempFail);
}

Status CheckpointAndStop::Finish() {
  if (checkpointer_ == nullptr) return Status::Ok();
  return GiveUpIfAsked(OfAllRanks(FinishOrTryAgain()), "after the last update",
                       ErrorKind::kTempFail);
}

Status CheckpointAndStop::Save(When when) {
  progress_.SetPhase(heartbeat::Phase::kSave, summary_->updates);
  if (left_ && left_->decision.action == StopAction::kSaveStop) {
    GACCD_RETURN_IF_ERROR(
        checkpointer_->SaveWindow(summary_->updates, summary_->samples, left_->done));
  } else if (when == When::kNow) {
    GACCD_RETURN_IF_ERROR(checkpointer_->Save(summary_->updates, summary_->samples));
  } else {
    GACCD_RETURN_IF_ERROR(checkpointer_->SaveOrPostpone(summary_->updates, summary_->samples));
  }
  if (stops_ != nullptr) stops_->Saved();
  return Status::Ok();
}

Status CheckpointAndStop::FinishOrTryAgain() {
  constexpr std::chrono::seconds kPause{2};
  Status saved = checkpointer_->Finish();
  while (checkpointer_->may_try_again(saved)) {
    std::this_thread::sleep_for(kPause);
    if (stops_ != nullptr) {
      GACCD_RETURN_IF_ERROR(stops_->AfterStage("while the last save was tried again"));
    }
    GACCD_RETURN_IF_ERROR(Save());
    saved = checkpointer_->Finish();
  }
  return saved;
}

// A save that fails does not change why the run stops: the checkpoint before stays.
Status CheckpointAndStop::Stop(const std::string& where, const StopDecision& decision) {
  if (!decision.saves_and_stops() || checkpointer_ == nullptr) {
    stops_->LimitExit(decision.kind);
    return decision.ToStatus(where, false);
  }
  Status saved = Save();
  if (saved.ok()) saved = checkpointer_->Finish();
  if (!saved.ok() && saved.kind() == ErrorKind::kInterrupted) {
    return GiveUpIfAsked(std::move(saved), where, decision.kind);
  }
  const Status status = decision.ToStatus(where, saved.ok());
  if (saved.ok()) return status;
  return {status.kind(), StrCat(status.message(), ": ", saved.message())};
}

Status CheckpointAndStop::StopInside() {
  const bool repeated = left_->decision.action == StopAction::kSaveBeforeStop;
  return Stop(StrCat("inside update ", left_->index + 1, " after micro-step ", left_->done,
                     repeated ? ", which is to be repeated (its accumulators are not saved)" : ""),
              left_->decision);
}

Status CheckpointAndStop::GiveUpIfAsked(Status saved, const std::string& where, ErrorKind kind) {
  if (saved.ok() || saved.kind() != ErrorKind::kInterrupted) return saved;
  checkpointer_->Abandon();
  if (stops_ != nullptr) stops_->LimitExit(kind);
  return {kind, StrCat("stopped by a second request ", where, ", not saved")};
}

Status CheckpointAndStop::OfAllRanks(Status saved) const {
  if (!saved.ok() && saved.kind() == ErrorKind::kIo) summary_->failed_together = true;
  return saved;
}

}  // namespace gaccd
