#include "daemon/ops/fused.h"

#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/softmax_cross_entropy.h"

namespace gaccd {

Result<std::vector<ValueSpec>> LinearWeightBiasGradient::Infer(
    std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, LinearWeightGradient().Infer(inputs));
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> bias, BiasGradient().Infer(inputs));
  outputs.push_back(bias[0]);
  return outputs;
}

Result<std::vector<ValueSpec>> SoftmaxCrossEntropyFused::Infer(
    std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs,
                         SoftmaxCrossEntropyGradient().Infer(inputs));
  outputs.push_back({{1}, DType::kF64});
  return outputs;
}

Result<std::vector<ValueSpec>> SoftmaxCrossEntropyLoss::Infer(
    std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> outputs, SoftmaxCrossEntropy().Infer(inputs));
  return std::vector<ValueSpec>{outputs[0]};
}

Result<std::vector<ValueSpec>> MeanSquaredErrorFused::Infer(
    std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, MeanSquaredErrorGradient().Infer(inputs));
  outputs.push_back({{1}, DType::kF64});
  return outputs;
}

}  // namespace gaccd
