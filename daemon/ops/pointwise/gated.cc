#include "daemon/ops/pointwise/gated.h"

#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Gated::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  const ValueSpec& a = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckFloat(a, "the input"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], a.shape, "the second input", a.dtype));
  return std::vector<ValueSpec>{{a.shape, to_bf16_ ? DType::kBF16 : a.dtype}};
}

Status Gated::Gradient(GradientScope& scope) const {
  constexpr std::size_t kInputs[] = {0, 1};
  return scope.SetInputGradients(kInputs, std::make_shared<GatedGradient>(kind_),
                                 {scope.OutputGradient(0), scope.input(0), scope.input(1)});
}

OutputSpecs GatedGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  const ValueSpec& dy = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckFloat(dy, "the gradient"));
  for (const std::size_t i : {1, 2}) {
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[i], dy.shape, "the value", dy.dtype));
  }
  return std::vector<ValueSpec>{dy, dy};
}

}  // namespace gaccd
