#include "daemon/train/best_evaluation.h"

#include <cmath>

namespace gaccd {

void BestEvaluation::Restore(const BestSoFar& state, const EvaluationSpec& was) {
  state_ = was.metric == rules_.metric ? state : BestSoFar{};
}

void BestEvaluation::Take(std::int64_t step, double value) {
  if (step <= state_.evaluated) return;
  state_.evaluated = step;
  const bool better = SmallerIsBetter(rules_.metric) ? value < state_.value : value > state_.value;
  if (!std::isfinite(value) || (state_.step > 0 && !better)) return;
  state_.step = step;
  state_.value = value;
}

std::optional<BestValue> BestEvaluation::best() const {
  if (state_.step == 0) return std::nullopt;
  return BestValue{.metric = rules_.metric, .value = state_.value, .step = state_.step};
}

}  // namespace gaccd
