// Rebalancer: what the loads of the ranks should be, by the times that were measured. All ranks
// give it the same times (ControlWords), in the same updates, and so decide the same.
//
// Speeds: of every rank the median over kUpdates updates of samples / busy time, relative to the
// fastest rank, rounded to thousandths. A rank without samples keeps the speed of the plan. The
// first kWarmUp updates after a start or a change of loads are not counted.
//
// The better plan is that of these speeds (SplitBySpeed), of at least kLeastSpeedMeasured: reading
// that is done while a rank waits for the others is not in its busy time, so that ranks bound by
// their data look faster than they are. Its gain: the time of the slowest rank under the loads as
// they are, over that under the better ones, by the speeds as measured.
//
// A micro-step has a cost of its own that speeds do not show: when the slowest rank takes longer
// after a change than before, the loads before it are the better plan, and no other is applied.
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
  double gain = 1;     // at least Rebalancer::kLeastGain
  bool apply = false;  // else it is advice
};

class Rebalancer {
 public:
  static constexpr int kWarmUp = 5;
  static constexpr int kUpdates = 20;
  static constexpr double kLeastGain = 1.05;
  static constexpr double kLeastSpeedMeasured = 0.1;

  // once: the first better plan is applied, later ones are advice. always: all are.
  Rebalancer(std::size_t world, bool once, bool always)
      : rates_(world), once_(once), always_(always) {}

  // An update of plan.effective_batch() samples took rank r busy_s[r] seconds. The better plan, if
  // it is time for one and there is one; advice comes once. Errors: those of Plan::Make().
  Result<std::optional<BetterPlan>> Add(std::span<const double> busy_s, const Plan& plan);

 private:
  // Loads that were applied: what was before.
  struct Changed {
    Plan before;
    double slowest_s = 0;  // the median of the longest busy time of a rank
  };
  // Relative to the fastest rank.
  [[nodiscard]] std::vector<double> Measured(const Plan& plan);

  std::vector<std::vector<double>> rates_;  // by rank: samples a second, of each update
  std::vector<double> slowest_s_;           // of each update: the longest busy time
  std::optional<Changed> changed_;          // since then not compared
  int seen_ = 0;                            // updates since the last change, or decision
  bool once_;
  bool always_;
  bool advised_ = false;
};

}  // namespace gaccd
