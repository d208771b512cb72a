#include "daemon/train/rebalancer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/plan/speeds.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/trainer.h"
#include "daemon/train/training_checks.h"

namespace gaccd {

namespace {

constexpr double kSteps = 1000;  // resolution of rounded speeds

// The lower median.
double LowerMedian(std::vector<double>* values) {
  const auto middle = values->begin() + (std::ssize(*values) - 1) / 2;
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

double TimeUnder(const Plan& plan, std::span<const double> speeds) {
  double slowest = 0;
  for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
    const auto load = static_cast<double>(plan.Load(static_cast<std::int64_t>(rank)));
    slowest = std::max(slowest, load / speeds[rank]);
  }
  return slowest;
}

}  // namespace

std::vector<double> Rebalancer::Measured(const Plan& plan) {
  std::vector<double> speeds;
  double fastest = 0;
  for (std::vector<double>& rates : rates_) {
    speeds.push_back(rates.empty() ? 0 : LowerMedian(&rates));
    fastest = std::max(fastest, speeds.back());
  }
  // A rank without samples keeps the speed of the plan, relative to
  // the fastest, whose speed is 1.
  double fastest_planned = 0;
  for (std::int64_t rank = 0; rank < std::ssize(speeds); ++rank) {
    fastest_planned = std::max(fastest_planned, plan.Speed(rank));
  }
  for (std::size_t rank = 0; rank < speeds.size(); ++rank) {
    double& speed = speeds[rank];
    const double planned = plan.Speed(static_cast<std::int64_t>(rank)) / fastest_planned;
    const double measured = std::round(kSteps * speed / fastest) / kSteps;
    speed = std::max(speed > 0 ? measured : planned, 1 / kSteps);
  }
  return speeds;
}

Result<std::optional<BetterPlan>> Rebalancer::Add(std::span<const double> busy_s,
                                                  const Plan& plan) {
  if (++seen_ <= kWarmUp) return std::optional<BetterPlan>();
  slowest_s_.push_back(*std::ranges::max_element(busy_s));
  for (std::size_t rank = 0; rank < rates_.size(); ++rank) {
    const std::int64_t load = plan.Load(static_cast<std::int64_t>(rank));
    if (load > 0 && busy_s[rank] > 0) {
      rates_[rank].push_back(static_cast<double>(load) / busy_s[rank]);
    }
  }
  if (seen_ < kWarmUp + kUpdates) return std::optional<BetterPlan>();
  const std::vector<double> measured = Measured(plan);
  const double slowest_s = LowerMedian(&slowest_s_);
  for (std::vector<double>& rates : rates_) rates.clear();
  slowest_s_.clear();
  seen_ = kWarmUp;
  if (std::optional<Changed> last = std::exchange(changed_, std::nullopt);
      last && slowest_s > last->slowest_s) {
    seen_ = 0;
    once_ = always_ = false;
    return std::optional(BetterPlan{std::move(last->before), slowest_s / last->slowest_s, true});
  }
  PlanRequest request = plan.request();
  request.speeds = measured;
  for (double& speed : request.speeds) speed = std::max(speed, kMinSpeedMeasured);
  GACCD_ASSIGN_OR_RETURN(Plan better, Plan::Make(request));
  const double gain = TimeUnder(plan, measured) / TimeUnder(better, measured);
  if (gain < kMinGain) return std::optional<BetterPlan>();
  const bool apply = always_ || std::exchange(once_, false);
  if (apply) {
    seen_ = 0;
    changed_ = {plan, slowest_s};
  }
  if (!apply && std::exchange(advised_, true)) return std::optional<BetterPlan>();
  return std::optional(BetterPlan{std::move(better), gain, apply});
}

// Trainer: adapts loads to the measured times of the ranks.

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
