#include "daemon/ops/norm/layer_norm.h"

#include "daemon/autograd/add.h"
#include "daemon/ops/fuse.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs LayerNorm::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckHasColumns(x));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], {x.shape[1]}, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {x.shape[1]}, "beta"));
  const ValueSpec statistics{{x.shape[0]}, DType::kF32};
  return std::vector<ValueSpec>{
      {x.shape, to_bf16_ ? DType::kBF16 : x.dtype}, statistics, statistics};
}

Status LayerNorm::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1) || scope.HasOutputGradient(2)) {
    return {ErrorKind::kConfig, "layer_norm: mean and rstd have no gradient"};
  }
  constexpr std::size_t kInputs[] = {0, 1, 2};
  return scope.SetInputGradients(
      kInputs, std::make_shared<LayerNormGradient>(),
      {scope.OutputGradient(0), scope.input(0), scope.input(1), scope.output(1), scope.output(2)});
}

OutputSpecs LayerNormGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 5));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckHasColumns(x));
  const ValueSpec gamma{{x.shape[1]}, DType::kF32};
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient", x.dtype));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], gamma.shape, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], {x.shape[0]}, "the mean"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[4], {x.shape[0]}, "rstd"));
  return std::vector<ValueSpec>{x, gamma, gamma};
}

OutputSpecs AddLayerNorm::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 4));
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, Add().Infer(inputs.first(2)));
  const ValueSpec of_norm[] = {outputs[0], inputs[2], inputs[3]};
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> norm, LayerNorm(eps_).Infer(of_norm));
  outputs.insert(outputs.end(), norm.begin(), norm.end());
  return outputs;
}

OutputSpecs LayerNormGradientAdd::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 6));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[5], x.shape, "the residual", x.dtype));
  return LayerNormGradient().Infer(inputs.first(5));
}

void FuseAddLayerNorm(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<Add>(i)) continue;
    const Node& add = fuser.node(i);
    const auto j =
        fuser.Find<LayerNorm>([&](const Node& norm) { return norm.inputs[0] == add.outputs[0]; });
    if (!j) continue;
    const Node& norm = fuser.node(*j);
    if (!fuser.ComputedBefore(norm.inputs[1], i) || !fuser.ComputedBefore(norm.inputs[2], i))
      continue;
    const float eps = static_cast<const LayerNorm&>(*norm.function).eps();
    fuser.Replace(i, {std::make_shared<AddLayerNorm>(eps),
                      {add.inputs[0], add.inputs[1], norm.inputs[1], norm.inputs[2]},
                      {add.outputs[0], norm.outputs[0], norm.outputs[1], norm.outputs[2]}});
    fuser.Erase(*j);
  }
}

void FuseLayerNormGradientAdd(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<LayerNormGradient>(i)) continue;
    Node fused = fuser.node(i);
    const ValueId dx = fused.outputs[0];
    const auto j = fuser.Find<Add>(
        [&](const Node& add) { return add.inputs[0] == dx || add.inputs[1] == dx; });
    if (!j || !fuser.OnlyReadBy(dx, *j)) continue;
    const Node& add = fuser.node(*j);
    const ValueId residual = add.inputs[add.inputs[0] == dx ? 1 : 0];
    if (!fuser.ComputedBefore(residual, i)) continue;
    fused.function = std::make_shared<LayerNormGradientAdd>();
    fused.inputs.push_back(residual);
    fused.outputs[0] = add.outputs[0];
    fuser.Replace(i, std::move(fused));
    fuser.Erase(*j);
  }
}

OutputSpecs RmsNorm::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckHasColumns(x));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], {x.shape[1]}, "gamma"));
  return std::vector<ValueSpec>{{x.shape, to_bf16_ ? DType::kBF16 : x.dtype},
                                {{x.shape[0]}, DType::kF32}};
}

Status RmsNorm::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1)) return {ErrorKind::kConfig, "rms_norm: rstd has no gradient"};
  constexpr std::size_t kInputs[] = {0, 1};
  return scope.SetInputGradients(
      kInputs, std::make_shared<RmsNormGradient>(),
      {scope.OutputGradient(0), scope.input(0), scope.input(1), scope.output(1)});
}

OutputSpecs RmsNormGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 4));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckHasColumns(x));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient", x.dtype));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {x.shape[1]}, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], {x.shape[0]}, "rstd"));
  return std::vector<ValueSpec>{x, {{x.shape[1]}, DType::kF32}};
}

}  // namespace gaccd
