#include "daemon/ops/pointwise/activations.h"

#include "daemon/autograd/add.h"
#include "daemon/ops/fuse.h"
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
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, inputs.size() > 2 ? 3 : 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the gradient"));
  if (inputs.size() > 2) {
    GACCD_RETURN_IF_ERROR(
        CheckShapeIs(inputs[2], inputs[0].shape, "a part of the gradient", inputs[0].dtype));
  }
  const DType kept = inputs[1].dtype == DType::kBF16 ? DType::kBF16 : inputs[0].dtype;
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the output", kept));
  return std::vector<ValueSpec>{{inputs[0].shape, to_bf16_ ? DType::kBF16 : inputs[0].dtype}};
}

void FuseReluGradients(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<ReluGradient>(i) || fuser.node(i).inputs.size() > 2) continue;
    Node fused = fuser.node(i);
    const ValueId dy = fused.inputs[0];
    if (!fuser.OnlyReadBy(dy, i)) continue;
    const auto add = fuser.Find<Add>([&](const Node& node) { return node.outputs[0] == dy; });
    if (!add) continue;
    fused.inputs[0] = fuser.node(*add).inputs[0];
    fused.inputs.push_back(fuser.node(*add).inputs[1]);
    fuser.Erase(*add);
    fuser.Replace(i, std::move(fused));
  }
}

}  // namespace gaccd
