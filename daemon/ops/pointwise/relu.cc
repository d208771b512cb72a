#include "daemon/ops/pointwise/relu.h"

#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Relu::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the input"));
  return std::vector<ValueSpec>{inputs[0]};
}

Status Relu::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<ReluGradient>(),
                                {scope.OutputGradient(0), scope.output(0)});
}

OutputSpecs ReluGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the gradient"));
  const DType kept = inputs[1].dtype == DType::kBF16 ? DType::kBF16 : inputs[0].dtype;
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the output", kept));
  return std::vector<ValueSpec>{{inputs[0].shape, to_bf16_ ? DType::kBF16 : inputs[0].dtype}};
}

}  // namespace gaccd
