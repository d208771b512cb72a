// Rebalancer: computes better loads for the ranks from measured times. All ranks add the same times
// (ControlWords) in the same updates, so they reach the same decision.
//
// The speed of a rank is the median over kUpdates updates of samples / busy time, relative to the
// fastest rank, rounded to thousandths. A rank without samples keeps the speed of the plan. The
// first kWarmUp updates after a start or a change of loads are ignored.
//
// The better plan uses these speeds (SplitBySpeed), at least kMinSpeedMeasured: data read while a
// rank waits for others is not in its busy time, so ranks limited by their data look faster than
// they are. Its gain is the time of the slowest rank with the current loads divided by that with
// the better ones, at the measured speeds.
//
// A micro-step has a fixed cost that speeds do not show: if the slowest rank takes longer after a
// change than before, the previous loads become the better plan, and no other plan is applied.
// Its gain is the time of the slowest rank after the change divided by that before it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"

namespace gaccd {

struct BetterPlan {
  Plan plan;
  double gain = 1;     // at least Rebalancer::kMinGain; back to the previous loads: above 1
  bool apply = false;  // false: only advice
};

class Rebalancer {
 public:
  static constexpr int kWarmUp = 5;
  static constexpr int kUpdates = 20;
  static constexpr double kMinGain = 1.05;
  static constexpr double kMinSpeedMeasured = 0.1;

  // once: the first better plan is applied, later ones are advice. always: all are applied.
  Rebalancer(std::size_t world, bool once, bool always)
      : rates_(world), once_(once), always_(always) {}

  // In an update of plan.effective_batch() samples, rank r was busy for busy_s[r] seconds. Returns
  // the better plan if it is due and exists; advice is returned once. Errors: those of
  // Plan::Make().
  Result<std::optional<BetterPlan>> Add(std::span<const double> busy_s, const Plan& plan);

 private:
  // State before the last change of loads.
  struct Changed {
    Plan before;
    double slowest_s = 0;  // median over updates of the longest busy time
  };
  // Measured speeds, relative to the fastest rank.
  [[nodiscard]] std::vector<double> Measured(const Plan& plan);

  std::vector<std::vector<double>> rates_;  // by rank: samples per second in each update
  std::vector<double> slowest_s_;           // by update: the longest busy time
  std::optional<Changed> changed_;          // a change that was not yet compared
  int seen_ = 0;                            // updates since the last change or decision
  bool once_;
  bool always_;
  bool advised_ = false;
};

}  // namespace gaccd
