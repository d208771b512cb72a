#include "daemon/train/nonfinite_handler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/telemetry/log.h"
#include "daemon/tensor/reproducible_sum.h"

namespace gaccd {

Result<SharedOffenders> NonfiniteHandler::LocateOffenders(const UpdateInFlight& done,
                                                          bool loss_only,
                                                          std::vector<Offender>* mine) {
  const Plan& plan = c_.feed.PlanFor(done.update);
  const auto look = [&]() -> Result<std::vector<Offender>> {
    GACCD_ASSIGN_OR_RETURN(const UpdateReplay replay, c_.feed.Replay(c_.engine, done.update));
    return FindOffenders(c_.engine, c_.layout, replay, plan.any_split() ? kFloatLimit : INFINITY,
                         loss_only);
  };
  auto found = look();
  if (found.ok() && !found->empty()) {
    // For the text log of this rank: the combined result of the ranks is reported once.
    LogInfo(StrCat("update ", done.step(), ": ", Describe(*found, plan.accum_steps())));
  }
  GACCD_ASSIGN_OR_RETURN(SharedOffenders shared,
                         ShareOffenders(c_.comm, found, plan.Load(c_.comm.rank()),
                                        plan.accum_steps(), c_.engine.can_probe()));
  *mine = *std::move(found);
  return shared;
}

Status NonfiniteHandler::CheckParameters() const {
  std::int64_t ranks = c_.engine.parameters_not_finite() ? 1 : 0;
  const MutableBuffer sum = View(std::span(&ranks, 1));
  GACCD_RETURN_IF_ERROR(c_.comm.AllReduceSum(sum, sum));
  if (ranks == 0) return Status::Ok();
  std::vector<float> parameters(static_cast<std::size_t>(c_.layout.size()));
  GACCD_RETURN_IF_ERROR(c_.engine.GetParameters(parameters));
  // Empty if the limit of a learned scale has replaced the value.
  const std::string name = FirstNotFiniteParameter(c_.layout, parameters);
  // kSkipUpdate: without the advice to skip updates, which would not help.
  return {ErrorKind::kNoRequeue,
          StrCat("training diverged: the optimiser has made ", name.empty() ? "a parameter" : name,
                 " not finite; ", Remedy(c_.job, OnNonfinite::kSkipUpdate, /*bad_data=*/false))};
}

Status NonfiniteHandler::Explain(const UpdateInFlight& done, Status error) {
  if (error.kind() != ErrorKind::kNoRequeue) return error;
  GACCD_RETURN_IF_ERROR(CheckParameters());
  std::vector<Offender> mine;
  const auto shared = LocateOffenders(done, /*loss_only=*/false, &mine);
  if (shared.ok()) return Diverged(error.message(), *shared);
  return {error.kind(), StrCat(error.message(), "; ", shared.status().message())};
}

Status NonfiniteHandler::Diverged(const std::string& why, const SharedOffenders& shared) const {
  return {ErrorKind::kNoRequeue,
          StrCat(why, "; ", shared.text, "; ", Remedy(c_.job, policy_, shared.bad_data))};
}

// Only the 1st, 2nd, 4th, 8th, ... of possibly thousands.
void NonfiniteHandler::WarnAboutUnlabelled(const UpdateInFlight& done) {
  ++unlabelled_;
  const bool tell = (unlabelled_ & (unlabelled_ - 1)) == 0;
  if (!tell || c_.comm.rank() != 0) return;
  LogWarning(StrCat("update ", done.step(), " is skipped: none of its ", done.update.samples,
                    " samples has a label that counts",
                    unlabelled_ == 1 ? "" : StrCat("; such updates so far: ", unlabelled_)));
}

Status NonfiniteHandler::UpdateLossScale(const UpdateInFlight& done, const UpdateResult& result) {
  GACCD_RETURN_IF_ERROR(c_.loss_scale->Update(result.finite));
  if (result.finite || c_.comm.rank() != 0) return Status::Ok();
  LogWarning(StrCat("update ", done.step(), " is skipped: its gradient overflowed; the loss scale ",
                    "is halved to ", NumberText(c_.loss_scale->scale())));
  return Status::Ok();
}

Status NonfiniteHandler::HandleResult(const UpdateInFlight& done, UpdateResult* result) {
  if (IsUnlabelled(*result)) {
    WarnAboutUnlabelled(done);
    return Status::Ok();
  }
  // No policy and no loss scale changes that.
  if (!result->finite) GACCD_RETURN_IF_ERROR(CheckParameters());
  if (c_.loss_scale != nullptr && std::isfinite(result->loss)) {
    if (Status status = UpdateLossScale(done, *result); !status.ok()) return Explain(done, status);
    if (!result->finite) return Status::Ok();
  }
  if (result->finite) {
    in_a_row_ = 0;
    return Status::Ok();
  }
  std::vector<Offender> mine;
  const bool loss_only = c_.loss_scale != nullptr;  // an overflow is no fault of the samples
  GACCD_ASSIGN_OR_RETURN(const SharedOffenders shared, LocateOffenders(done, loss_only, &mine));
  if (policy_ == OnNonfinite::kStop) {
    return Diverged(StrCat("training diverged: the loss is ", result->loss, ", the gradient is ",
                           std::isfinite(result->grad_norm) ? "finite" : "not finite"),
                    shared);
  }
  if (++in_a_row_ > kMaxInARow) {
    return Diverged(StrCat("training diverged: ", in_a_row_, " updates in a row were not finite"),
                    shared);
  }
  const auto warn = [&](const std::string& text) {
    if (c_.comm.rank() != 0) return;
    LogWarning(StrCat("update ", done.step(), text, shared.text));
  };
  const std::int64_t planned = done.update.samples;
  if (policy_ != OnNonfinite::kDropMicroBatch || shared.remaining_samples == 0) {
    warn(" is skipped: ");
    return Status::Ok();
  }
  if (shared.remaining_samples < planned) {
    GACCD_ASSIGN_OR_RETURN(*result, RepeatWithout(done, mine, shared.remaining_samples));
  }
  if (IsUnlabelled(*result)) {
    warn(" is skipped, as no label of its finite micro-batches counts: ");
    return Status::Ok();
  }
  if (loss_only && std::isfinite(result->loss)) {
    if (Status status = UpdateLossScale(done, *result); !status.ok()) return Explain(done, status);
    if (!result->finite) return Status::Ok();
  }
  if (!result->finite) {
    return Diverged(
        StrCat("training diverged: not finite, also without the ",
               planned - shared.remaining_samples, " samples of micro-batches that are not"),
        shared);
  }
  in_a_row_ = 0;
  warn(StrCat(" continues with ", shared.remaining_samples, " of ", planned, " samples: "));
  return Status::Ok();
}

Result<UpdateResult> NonfiniteHandler::RepeatWithout(const UpdateInFlight& done,
                                                     const std::vector<Offender>& mine,
                                                     std::int64_t samples) {
  GACCD_ASSIGN_OR_RETURN(const UpdateReplay replay, c_.feed.Replay(c_.engine, done.update));
  const UpdateHooks hooks{.on_progress =
                              [&](heartbeat::Phase phase, std::int64_t step) {
                                c_.progress.SetPhase(phase, done.update.index, step);
                              },
                          .should_stop = {},
                          .is_dropped =
                              [&](std::int64_t step) {
                                return std::ranges::any_of(mine, [&](const Offender& offender) {
                                  return offender.micro_step == step;
                                });
                              }};
  GACCD_RETURN_IF_ERROR(RunUpdate(c_.engine, *replay.batches, c_.feed.ProgramFor(done.update),
                                  {.samples = samples,
                                   .update = done.update.index,
                                   .lr = done.lr,
                                   .clip_norm = c_.job.clip_norm,
                                   .loss_scale = done.loss_scale,
                                   .control_words = c_.control_words},
                                  hooks));
  GACCD_ASSIGN_OR_RETURN(const auto result, c_.engine.PopResult(/*wait=*/true));
  if (!result) {
    return Status(ErrorKind::kInternal, "the engine has no results of a repeated update");
  }
  return *result;
}

Status LossScale::Update(bool finite) {
  if (!finite) {
    state_ = {.scale = state_.scale / 2};
    if (state_.scale >= rules_.least_scale) return Status::Ok();
    return {ErrorKind::kNoRequeue,
            StrCat("training diverged: its gradient is not finite, however small the loss scale: "
                   "expected at least loss_scale.least_scale, ",
                   NumberText(rules_.least_scale), ", found ", NumberText(state_.scale),
                   "; precision bf16 has the range of f32")};
  }
  if (++state_.growth_tracker < rules_.growth_interval) return Status::Ok();
  const double grown = state_.scale * 2;
  // As in GradScaler, which stores it in f32.
  if (std::isfinite(static_cast<float>(grown))) state_.scale = grown;
  state_.growth_tracker = 0;
  return Status::Ok();
}

}  // namespace gaccd
