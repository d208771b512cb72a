#include "daemon/ops/softmax_cross_entropy.h"

#include "daemon/ops/fuse.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckLogitsAndLabels(std::span<const ValueSpec> inputs) {
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the logits"));
  return CheckShapeIs(inputs[1], {inputs[0].shape[0]}, "the labels", DType::kI32);
}

}  // namespace

OutputSpecs SoftmaxCrossEntropy::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
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

OutputSpecs SoftmaxCrossEntropyGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  GACCD_RETURN_IF_ERROR(CheckLogitsAndLabels(inputs));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {1}, "the loss gradient"));
  return std::vector<ValueSpec>{inputs[0]};
}

OutputSpecs SoftmaxCrossEntropyFused::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs,
                         SoftmaxCrossEntropyGradient().Infer(inputs));
  outputs.push_back({{1}, DType::kF64});
  return outputs;
}

OutputSpecs SoftmaxCrossEntropyLoss::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> outputs, SoftmaxCrossEntropy().Infer(inputs));
  return std::vector<ValueSpec>{outputs[0]};
}

void FuseSoftmaxCrossEntropy(Fuser& fuser) {
  fuser.FuseLoss<SoftmaxCrossEntropy, SoftmaxCrossEntropyGradient, SoftmaxCrossEntropyFused>();
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<SoftmaxCrossEntropy>(i) || !fuser.OnlySumIsRead(i)) continue;
    const Node& loss = fuser.node(i);
    fuser.Replace(i, {std::make_shared<SoftmaxCrossEntropyLoss>(), loss.inputs, {loss.outputs[0]}});
  }
}

}  // namespace gaccd
