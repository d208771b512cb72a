#include "daemon/eval/best_evaluation.h"

#include <cmath>

#include "collectives/base/strings.h"

namespace gaccd {

bool PatienceIsOver(const EvaluationSpec& rules, const BestSoFar& state) {
  return rules.patience > 0 && state.waited >= rules.patience;
}

void BestEvaluation::Restore(const BestSoFar& state, const EvaluationSpec& was) {
  state_ = was.metric == rules_.metric ? state : BestSoFar{};
}

// With least_change, `reference` may differ from the best value: it is the last one with a large
// enough change, so that several small changes add up.
void BestEvaluation::Record(std::int64_t step, double value) {
  if (step <= state_.evaluated) return;
  state_.evaluated = step;
  ++state_.waited;
  if (!std::isfinite(value)) return;
  const bool first = state_.step == 0;
  const double by = better_ == Better::kSmaller ? -rules_.least_change : rules_.least_change;
  if (first || IsBetter(better_, value, state_.reference + by)) {
    state_.reference = value;
    state_.waited = 0;
  }
  if (first || IsBetter(better_, value, state_.value)) {
    state_.step = step;
    state_.value = value;
  }
}

std::optional<BestValue> BestEvaluation::best() const {
  if (state_.step == 0) return std::nullopt;
  return BestValue{.metric = rules_.metric, .value = state_.value, .step = state_.step};
}

std::string BestEvaluation::StopReason() const {
  return StrCat("stopped early: no better ", rules_.metric, " for ",
                Counted(state_.waited, "evaluation"));
}

}  // namespace gaccd
