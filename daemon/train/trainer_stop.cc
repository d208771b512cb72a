// How the trainer saves, and how it leaves when the ranks were asked to stop.
#include <chrono>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/train/trainer.h"

namespace gaccd {

Status Trainer::SaveAt(const TrainingSummary& summary, Saver& saver, When when) {
  notes_.Note(heartbeat::Phase::kSave, summary.updates);
  const bool window = left_ && left_->action == StopAction::kSaveStop;
  if (window) {
    GACCD_RETURN_IF_ERROR(saver.SaveWindow(summary.updates, summary.samples, left_after_));
  } else if (when == When::kNow) {
    GACCD_RETURN_IF_ERROR(saver.Save(summary.updates, summary.samples));
  } else {
    GACCD_RETURN_IF_ERROR(saver.SaveOrPostpone(summary.updates, summary.samples));
  }
  if (stops_ != nullptr) stops_->Saved();
  return Status::Ok();
}

Status Trainer::FinishSaves(const TrainingSummary& summary, Saver& saver) {
  constexpr std::chrono::seconds kPause{2};
  Status saved = saver.Finish();
  while (saver.may_try_again(saved)) {
    std::this_thread::sleep_for(kPause);
    if (stops_ != nullptr) {
      GACCD_RETURN_IF_ERROR(stops_->AfterStage("while the last save was tried again"));
    }
    GACCD_RETURN_IF_ERROR(SaveAt(summary, saver));
    saved = saver.Finish();
  }
  return saved;
}

// A save that fails does not change why the run stops: the checkpoint before stays.
Status Trainer::StopAt(const std::string& where, const StopDecision& decision,
                       const TrainingSummary& summary, Saver* saver) {
  if (!decision.saves_and_stops() || saver == nullptr) {
    stops_->Leave(decision.kind);
    return decision.ToStatus(where, false);
  }
  Status saved = SaveAt(summary, *saver);
  if (saved.ok()) saved = saver->Finish();
  if (!saved.ok() && saved.kind() == ErrorKind::kInterrupted) {
    return GiveUpIfAsked(std::move(saved), where, decision.kind, *saver);
  }
  const Status ending = decision.ToStatus(where, saved.ok());
  if (saved.ok()) return ending;
  return {ending.kind(), StrCat(ending.message(), ": ", saved.message())};
}

Status Trainer::GiveUpIfAsked(Status saved, const std::string& where, ErrorKind kind,
                              Saver& saver) {
  if (saved.ok() || saved.kind() != ErrorKind::kInterrupted) return saved;
  saver.Abandon();
  if (stops_ != nullptr) stops_->Leave(kind);
  return {kind, StrCat("stopped by a second request ", where, ", not saved")};
}

// Parameters and optimiser still stand after the update before; the accumulators hold a part of
// this one.
Status Trainer::LeaveInside(std::int64_t index, RunReporter& reporter, TrainingSummary* summary,
                            Saver* saver) {
  in_flight_.pop_back();  // the engine will not end it
  GACCD_RETURN_IF_ERROR(ReportUntil(0, reporter, summary));
  const bool repeated = left_->action == StopAction::kSaveBeforeStop;
  return StopAt(
      StrCat("inside update ", index + 1, " after micro-step ", left_after_,
             repeated ? ", which is to be repeated (no time to save its accumulators)" : ""),
      *left_, *summary, saver);
}

Result<bool> Trainer::LeaveWindow(std::int64_t done, std::int64_t steps) {
  if (stops_ == nullptr) return false;
  // Now and then they ask each other: who is not here yet is waited for.
  notes_.Note(heartbeat::Phase::kReduce, in_flight_.back().step - 1, done);
  GACCD_ASSIGN_OR_RETURN(const StopDecision here, stops_->BetweenMicroSteps(done, steps));
  if (!here.stops()) return false;
  left_ = here;
  left_after_ = done;
  return true;
}

}  // namespace gaccd
