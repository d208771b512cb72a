#include "daemon/ops/softmax_cross_entropy.h"

#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckLogitsAndLabels(std::span<const ValueSpec> inputs) {
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the logits"));
  return CheckShapeIs(inputs[1], {inputs[0].shape[0]}, "the labels", DType::kI32);
}

}  // namespace

Result<std::vector<ValueSpec>> SoftmaxCrossEntropy::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckLogitsAndLabels(inputs));
  return std::vector<ValueSpec>{{{1}, DType::kF64}, inputs[0]};
}

Status SoftmaxCrossEntropy::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1)) {
    return {ErrorKind::kConfig,
            "softmax_cross_entropy: only the loss has a gradient, found one for the probabilities"};
  }
  return scope.SetInputGradient(0, std::make_shared<SoftmaxCrossEntropyGradient>(),
                                {scope.output(1), scope.input(1), scope.OutputGradient(0)});
}

Result<std::vector<ValueSpec>> SoftmaxCrossEntropyGradient::Infer(
    std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckLogitsAndLabels(inputs));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {1}, "the loss gradient"));
  return std::vector<ValueSpec>{inputs[0]};
}

Result<std::vector<ValueSpec>> CorrectCount::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckLogitsAndLabels(inputs));
  return std::vector<ValueSpec>{{{1}, DType::kF64}};
}

}  // namespace gaccd
