#include "daemon/ops/pointwise/activations.h"

#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

// In the order of ActivationKind.
constexpr std::string_view kNames[] = {"gelu", "gelu_tanh", "tanh", "silu", "sigmoid", "hardswish"};
constexpr std::string_view kGradientNames[] = {"gelu_gradient",    "gelu_tanh_gradient",
                                               "tanh_gradient",    "silu_gradient",
                                               "sigmoid_gradient", "hardswish_gradient"};

}  // namespace

std::string_view Activation::name() const { return kNames[static_cast<std::size_t>(kind_)]; }

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
  return kGradientNames[static_cast<std::size_t>(kind_)];
}

OutputSpecs ActivationGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the value", inputs[0].dtype));
  return std::vector<ValueSpec>{{inputs[0].shape, to_bf16_ ? DType::kBF16 : inputs[0].dtype}};
}

}  // namespace gaccd
