// Trainer: adapts loads to the measured times of the ranks.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/plan/load_groups.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/trainer.h"
#include "daemon/train/training_checks.h"

namespace gaccd {
namespace {

RebalanceRecord ChangeRecord(std::int64_t step, const Plan& before, const BetterPlan& better) {
  return {.step = step,
          .gain_ratio = better.gain,
          .idle_ratio = 1 - better.plan.balance_ratio(),
          .accum_steps = better.plan.accum_steps(),
          .loads_before = LoadsText(before),
          .loads = LoadsText(better.plan),
          .speeds = SpeedsText(better.plan, kMaxSpeeds)};
}

}  // namespace

Status Trainer::RestoreLoads(const Manifest& saved) {
  const std::vector<double>& speeds = saved.plan->request().speeds;
  if (!loads_.any() || speeds.empty() || speeds == inputs_.plan.request().speeds) {
    return Status::Ok();
  }
  const std::string hosts = HostsText(comm_.topology().hosts);
  if (saved.hosts != hosts) {
    if (comm_.rank() == 0) {
      const std::string theirs = saved.hosts.empty() ? "unknown hosts" : saved.hosts;
      LogWarning(StrCat("the loads of the checkpoint are not used: its ranks ran on ", theirs,
                        ", and these run on ", hosts));
    }
    return Status::Ok();
  }
  PlanRequest request = inputs_.plan.request();
  request.speeds = speeds;
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  GACCD_RETURN_IF_ERROR(feed_.ChangePlan(plan));
  inputs_.plan = plan;
  return Status::Ok();
}

void Trainer::MeasureLoads() {
  const Update& timed = words_.busy_update();
  if (!rebalancer_ || words_.busy_s().empty() || timed.index < loads_since_ ||
      timed.samples != inputs_.plan.effective_batch()) {
    return;
  }
  auto found = rebalancer_->Add(words_.busy_s(), inputs_.plan);
  if (!found.ok()) {  // on all ranks; the current loads remain valid
    rebalancer_.reset();
    if (comm_.rank() != 0) return;
    LogWarning(StrCat("the loads of the ranks are no longer measured: no plan for the times of ",
                      "update ", timed.index + 1, ": ", found.status().message()));
    return;
  }
  std::optional<BetterPlan>& better = *found;
  if (!better) return;
  if (better->apply) {
    next_plan_ = std::move(better);
  } else if (comm_.rank() == 0) {
    const bool can_change = CheckOtherLoads(inputs_.job, inputs_.model, inputs_.plan).ok();
    LogInfo(StrCat("advice: ", EventLine(ChangeRecord(timed.index + 1, inputs_.plan, *better)),
                   can_change ? "; --rebalance=auto applies them"
                              : "; --speed with the speeds of the hosts applies similar ones"));
  }
}

Status Trainer::ChangeLoads(std::int64_t step, RunCheckpointer& control, RunReporter& reporter) {
  const BetterPlan better = *std::exchange(next_plan_, std::nullopt);
  const RebalanceRecord record = ChangeRecord(step, inputs_.plan, better);
  GACCD_RETURN_IF_ERROR(feed_.ChangePlan(better.plan));
  GACCD_RETURN_IF_ERROR(feed_.Start(*engine_, step));
  inputs_.plan = better.plan;
  loads_since_ = step;
  control.PlanChanged();
  reporter.Report(record);
  return Status::Ok();
}

}  // namespace gaccd
