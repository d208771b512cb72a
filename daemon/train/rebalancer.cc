#include "daemon/train/rebalancer.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

}  // namespace gaccd
