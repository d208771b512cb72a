#include "daemon/train/saves_and_stops.h"

#include <chrono>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

void SavesAndStops::BeginUpdate(std::int64_t restored) {
  if (stops_ == nullptr) return;
  if (saver_ != nullptr) stops_->ExpectSave(saver_->last_save_s(), saver_->window_ratio());
  stops_->BeginUpdate(restored);
}

Result<bool> SavesAndStops::LeavesWindow(std::int64_t index, std::int64_t done,
                                         const StepProgram& program) {
  if (stops_ == nullptr) return false;
  // Now and then they ask each other: who is not here yet is waited for.
  notes_.Note(heartbeat::Phase::kReduce, index, done);
  GACCD_ASSIGN_OR_RETURN(const StopDecision here,
                         stops_->BetweenMicroSteps(done, program.computed));
  if (!here.stops()) return false;
  left_ = {.index = index, .done = done, .decision = here};
  if (here.action == StopAction::kSaveStop && !program.continues) {
    left_->decision.action = StopAction::kSaveBeforeStop;
  }
  return true;
}

Result<bool> SavesAndStops::SaveIsDue(std::int64_t step, bool last) {
  if (saver_ == nullptr || last) return saver_ != nullptr;
  return saver_->Due(step);
}

Status SavesAndStops::AtBoundary(std::int64_t step, bool save, bool last) {
  if (saver_ == nullptr) return Status::Ok();
  GACCD_RETURN_IF_ERROR(OfAllRanks(saver_->Poll()));
  if (!save) return Status::Ok();
  return GiveUpIfAsked(OfAllRanks(Save(last ? When::kNow : When::kWhenTheDiskAnswers)),
                       StrCat("after update ", step), ErrorKind::kTempFail);
}

Status SavesAndStops::Finish() {
  if (saver_ == nullptr) return Status::Ok();
  return GiveUpIfAsked(OfAllRanks(FinishOrTryAgain()), "after the last update",
                       ErrorKind::kTempFail);
}

Status SavesAndStops::Save(When when) {
  notes_.Note(heartbeat::Phase::kSave, summary_->updates);
  if (left_ && left_->decision.action == StopAction::kSaveStop) {
    GACCD_RETURN_IF_ERROR(saver_->SaveWindow(summary_->updates, summary_->samples, left_->done));
  } else if (when == When::kNow) {
    GACCD_RETURN_IF_ERROR(saver_->Save(summary_->updates, summary_->samples));
  } else {
    GACCD_RETURN_IF_ERROR(saver_->SaveOrPostpone(summary_->updates, summary_->samples));
  }
  if (stops_ != nullptr) stops_->Saved();
  return Status::Ok();
}

Status SavesAndStops::FinishOrTryAgain() {
  constexpr std::chrono::seconds kPause{2};
  Status saved = saver_->Finish();
  while (saver_->may_try_again(saved)) {
    std::this_thread::sleep_for(kPause);
    if (stops_ != nullptr) {
      GACCD_RETURN_IF_ERROR(stops_->AfterStage("while the last save was tried again"));
    }
    GACCD_RETURN_IF_ERROR(Save());
    saved = saver_->Finish();
  }
  return saved;
}

// A save that fails does not change why the run stops: the checkpoint before stays.
Status SavesAndStops::Stop(const std::string& where, const StopDecision& decision) {
  if (!decision.saves_and_stops() || saver_ == nullptr) {
    stops_->Leave(decision.kind);
    return decision.ToStatus(where, false);
  }
  Status saved = Save();
  if (saved.ok()) saved = saver_->Finish();
  if (!saved.ok() && saved.kind() == ErrorKind::kInterrupted) {
    return GiveUpIfAsked(std::move(saved), where, decision.kind);
  }
  const Status ending = decision.ToStatus(where, saved.ok());
  if (saved.ok()) return ending;
  return {ending.kind(), StrCat(ending.message(), ": ", saved.message())};
}

Status SavesAndStops::StopInside() {
  const bool repeated = left_->decision.action == StopAction::kSaveBeforeStop;
  return Stop(StrCat("inside update ", left_->index + 1, " after micro-step ", left_->done,
                     repeated ? ", which is to be repeated (its accumulators are not saved)" : ""),
              left_->decision);
}

Status SavesAndStops::GiveUpIfAsked(Status saved, const std::string& where, ErrorKind kind) {
  if (saved.ok() || saved.kind() != ErrorKind::kInterrupted) return saved;
  saver_->Abandon();
  if (stops_ != nullptr) stops_->Leave(kind);
  return {kind, StrCat("stopped by a second request ", where, ", not saved")};
}

Status SavesAndStops::OfAllRanks(Status saved) const {
  if (!saved.ok() && saved.kind() == ErrorKind::kIo) summary_->failed_together = true;
  return saved;
}

}  // namespace gaccd
