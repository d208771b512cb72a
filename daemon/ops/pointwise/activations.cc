#include "daemon/ops/pointwise/activations.h"

#include "daemon/ops/shape_checks.h"

namespace gaccd {

std::string_view Activation::name() const {
  switch (kind_) {
    case ActivationKind::kGelu:
      return "gelu";
    case ActivationKind::kGeluTanh:
      return "gelu_tanh";
    case ActivationKind::kTanh:
      return "tanh";
    case ActivationKind::kSilu:
      return "silu";
    case ActivationKind::kSigmoid:
      return "sigmoid";
    case ActivationKind::kHardswish:
      return "hardswish";
  }
  return "";
}

OutputSpecs Activation::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the input"));
  return std::vector<ValueSpec>{{inputs[0].shape, to_bf16_ ? DType::kBF16 : inputs[0].dtype}};
}

Status Activation::Gradient(GradientScope& scope) const {
  const bool keeps_y = kind_ == ActivationKind::kTanh || kind_ == ActivationKind::kSigmoid;
  const ValueId kept = keeps_y ? scope.output(0) : scope.input(0);
  return scope.SetInputGradient(0, std::make_shared<ActivationGradient>(kind_),
                                {scope.OutputGradient(0), kept});
}

std::string_view ActivationGradient::name() const {
  switch (kind_) {
    case ActivationKind::kGelu:
      return "gelu_gradient";
    case ActivationKind::kGeluTanh:
      return "gelu_tanh_gradient";
    case ActivationKind::kTanh:
      return "tanh_gradient";
    case ActivationKind::kSilu:
      return "silu_gradient";
    case ActivationKind::kSigmoid:
      return "sigmoid_gradient";
    case ActivationKind::kHardswish:
      return "hardswish_gradient";
  }
  return "";
}

OutputSpecs ActivationGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the value", inputs[0].dtype));
  return std::vector<ValueSpec>{{inputs[0].shape, to_bf16_ ? DType::kBF16 : inputs[0].dtype}};
}

}  // namespace gaccd
