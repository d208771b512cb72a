#include "daemon/config/job.h"

#include <variant>

#include "collectives/base/overloaded.h"

namespace gaccd {

LossKind GetLossKind(const LossSpec& loss) {
  return std::visit(
      Overloaded{[](const SoftmaxCrossEntropySpec&) { return LossKind::kSoftmaxCrossEntropy; },
                 [](const MeanSquaredErrorSpec&) { return LossKind::kMeanSquaredError; },
                 [](const ContrastiveSpec&) { return LossKind::kContrastive; },
                 [](const OutputLossSpec&) { return LossKind::kOutput; }},
      loss);
}

std::string_view Name(LossKind loss) {
  switch (loss) {
    case LossKind::kSoftmaxCrossEntropy:
      return "softmax_cross_entropy";
    case LossKind::kMeanSquaredError:
      return "mean_squared_error";
    case LossKind::kContrastive:
      return "contrastive";
    case LossKind::kOutput:
      return "output";
  }
  return "";
}

Numerics GetNumerics(const JobSpec& job) {
  return {.precision = job.precision, .tf32 = job.tf32, .deterministic = job.deterministic};
}

}  // namespace gaccd
