#include "daemon/ops/loss/token_cross_entropy.h"

#include "collectives/base/strings.h"
#include "daemon/ops/fuse.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

// Checks the logits, the labels and, if there are more than `without` inputs, the weights.
Status CheckInputs(std::span<const ValueSpec> inputs, std::size_t without,
                   const TokenCrossEntropyOptions& options) {
  if (inputs.size() != without && inputs.size() != without + 1) {
    return {ErrorKind::kConfig, StrCat("expected ", without, " inputs, or ", without + 1,
                                       " with weights, found ", inputs.size())};
  }
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the logits"));
  const std::int64_t rows = inputs[0].shape[0];
  if (inputs[0].shape[1] < 1) {
    return {ErrorKind::kConfig,
            StrCat("the logits: expected at least 1 class, found ", ToString(inputs[0].shape))};
  }
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], {rows}, "the labels", DType::kI32));
  const float smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {
    return {ErrorKind::kConfig,
            StrCat("label smoothing: expected a value in [0, 1], found ", smoothing)};
  }
  if (inputs.size() == without) return Status::Ok();
  return CheckShapeIs(inputs.back(), {rows}, "the weights");
}

}  // namespace

OutputSpecs TokenCrossEntropy::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckInputs(inputs, 2, options_));
  const ValueSpec sum{{1}, DType::kF64};
  return std::vector<ValueSpec>{sum, sum, {{inputs[0].shape[0], 2}, DType::kF32}};
}

Status TokenCrossEntropy::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1) || scope.HasOutputGradient(2)) {
    return {ErrorKind::kConfig, "token_cross_entropy: only the loss has a gradient"};
  }
  if (scope.inputs() == 3 && scope.NeedsGradient(2)) {
    return {ErrorKind::kConfig, "token_cross_entropy: the weights have no gradient"};
  }
  std::vector<ValueId> inputs = {scope.input(0), scope.input(1), scope.output(2),
                                 scope.OutputGradient(0)};
  if (scope.inputs() == 3) inputs.push_back(scope.input(2));
  return scope.SetInputGradient(0, std::make_shared<TokenCrossEntropyGradient>(options_),
                                std::move(inputs));
}

OutputSpecs TokenCrossEntropyGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckInputs(inputs, 4, options_));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {inputs[0].shape[0], 2}, "the statistics"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], {1}, "the loss gradient"));
  return std::vector<ValueSpec>{inputs[0]};
}

OutputSpecs TokenCrossEntropyFused::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckInputs(inputs, 3, options_));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {1}, "the loss gradient"));
  const ValueSpec sum{{1}, DType::kF64};
  return std::vector<ValueSpec>{inputs[0], sum, sum};
}

OutputSpecs TokenCrossEntropyLoss::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckInputs(inputs, 2, options_));
  const ValueSpec sum{{1}, DType::kF64};
  return std::vector<ValueSpec>{sum, sum};
}

void FuseTokenCrossEntropy(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<TokenCrossEntropy>(i)) continue;
    const Node& loss = fuser.node(i);
    const auto& options = static_cast<const TokenCrossEntropy&>(*loss.function).options();
    const ValueId statistics = loss.outputs[2];
    const auto gradient = fuser.Find<TokenCrossEntropyGradient>(
        [statistics](const Node& node) { return node.inputs[2] == statistics; });
    if (!fuser.OnlyReadBy(statistics, gradient)) continue;
    if (!gradient) {
      fuser.Replace(i, {std::make_shared<TokenCrossEntropyLoss>(options),
                        loss.inputs,
                        {loss.outputs[0], loss.outputs[1]}});
      continue;
    }
    const ValueId dloss = fuser.node(*gradient).inputs[3];
    if (!fuser.ComputedBefore(dloss, i)) continue;
    std::vector<ValueId> inputs = loss.inputs;
    inputs.insert(inputs.begin() + 2, dloss);
    fuser.Replace(i, {std::make_shared<TokenCrossEntropyFused>(options),
                      std::move(inputs),
                      {fuser.node(*gradient).outputs[0], loss.outputs[0], loss.outputs[1]}});
    fuser.Erase(*gradient);
  }
}

}  // namespace gaccd
