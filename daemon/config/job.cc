#include "daemon/config/job.h"

#include <variant>

#include "collectives/base/overloaded.h"

namespace gaccd {

LossKind GetLossKind(const LossSpec& loss) {
  return std::visit(
      Overloaded{[](const SoftmaxCrossEntropySpec&) { return LossKind::kSoftmaxCrossEntropy; },
                 [](const MeanSquaredErrorSpec&) { return LossKind::kMeanSquaredError; },
                 [](const ContrastiveSpec&) { return LossKind::kContrastive; }},
      loss);
}

Numerics GetNumerics(const JobSpec& job) {
  return {.precision = job.precision, .tf32 = job.tf32, .deterministic = job.deterministic};
}

}  // namespace gaccd
