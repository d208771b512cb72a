// BestEvaluation: the best evaluation of a run so far, by the job's evaluation.metric, and whether
// the job's patience is over. Deterministic: equal on all ranks that record the same values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

// Whether a run with these rules is complete in this state.
[[nodiscard]] bool PatienceIsOver(const EvaluationSpec& rules, const BestSoFar& state);

class BestEvaluation {
 public:
  // better: for the values of rules.metric.
  BestEvaluation(EvaluationSpec rules, Better better) : rules_(std::move(rules)), better_(better) {}

  // Continues from `state` of a job with the rules `was`; ignored if its metric is another one.
  void Restore(const BestSoFar& state, const EvaluationSpec& was);
  // Adds the value of the evaluation after update `step`; ignored unless it is later than the last
  // one. A value that is not finite is never better.
  void Record(std::int64_t step, double value);

  // For checkpoints. The address does not change.
  [[nodiscard]] const BestSoFar& state() const { return state_; }
  [[nodiscard]] std::optional<BestValue> best() const;  // empty: none yet
  [[nodiscard]] bool patience_is_over() const { return PatienceIsOver(rules_, state_); }
  // "stopped early: no better loss for 3 evaluations". REQUIRES: patience_is_over().
  [[nodiscard]] std::string StopReason() const;

 private:
  EvaluationSpec rules_;
  Better better_;
  BestSoFar state_;
};

}  // namespace gaccd
