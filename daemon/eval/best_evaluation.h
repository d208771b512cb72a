// BestEvaluation: which evaluation of a run was the best so far, by the job's evaluation.metric,
// and whether the job's patience with those after it is over. The same on all ranks that record
// the same values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job.h"
#include "daemon/config/metric_kind.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

// Whether a run of a job with these rules is complete in this state.
[[nodiscard]] bool PatienceIsOver(const EvaluationSpec& rules, const BestSoFar& state);

class BestEvaluation {
 public:
  // better: of the values of rules.metric.
  BestEvaluation(EvaluationSpec rules, Better better) : rules_(std::move(rules)), better_(better) {}

  // The run continues from `state`, of a job with the rules `was`. Values of another metric do not
  // count.
  void Restore(const BestSoFar& state, const EvaluationSpec& was);
  // The evaluation after update `step` gave this value. One that was taken before changes nothing;
  // one that is not finite is not better than any.
  void Record(std::int64_t step, double value);

  // For checkpoints. In the same memory always.
  [[nodiscard]] const BestSoFar& state() const { return state_; }
  [[nodiscard]] std::optional<BestValue> best() const;  // empty: none yet
  [[nodiscard]] bool patience_is_over() const { return PatienceIsOver(rules_, state_); }
  // "stopped early: no better loss for 3 evaluations". REQUIRES: patience_is_over().
  [[nodiscard]] std::string WhyStopped() const;

 private:
  EvaluationSpec rules_;
  Better better_;
  BestSoFar state_;
};

}  // namespace gaccd
