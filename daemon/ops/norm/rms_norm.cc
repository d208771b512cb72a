#include "daemon/ops/norm/rms_norm.h"

#include "daemon/ops/shape_checks.h"

namespace gaccd {

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
