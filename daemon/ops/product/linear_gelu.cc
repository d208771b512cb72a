#include "daemon/ops/product/linear_gelu.h"

#include "daemon/ops/fuse.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

// The library requires rows of pre to be multiples of this many values.
constexpr std::int64_t kColumns = 8;

bool IsGelu(ActivationKind kind) {
  return kind == ActivationKind::kGelu || kind == ActivationKind::kGeluTanh;
}

template <typename F>
bool IsGeluTanh(const Node& node) {
  const auto* function = dynamic_cast<const F*>(node.function.get());
  return function != nullptr && function->kind() == ActivationKind::kGeluTanh;
}

}  // namespace

OutputSpecs LinearGelu::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, linear_.Infer(inputs));
  const ValueSpec pre = outputs[0];
  if (to_bf16_) outputs[0].dtype = DType::kBF16;
  outputs.push_back(pre);
  return outputs;
}

OutputSpecs LinearInputGradientTimes::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, linear_.Infer(inputs.first(2)));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], outputs[0].shape, "the slope"));
  if (to_bf16_) outputs[0].dtype = DType::kBF16;
  return outputs;
}

void FuseLinearGeluSlope(Fuser& fuser) {
  const auto is_bf16 = [&](ValueId value) { return fuser.spec(value).dtype == DType::kBF16; };
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<Linear>(i)) continue;
    const auto& linear = static_cast<const Linear&>(*fuser.node(i).function);
    const ValueId pre = fuser.node(i).outputs[0];
    if (linear.relu() || !fuser.IsActivation(pre) || fuser.spec(pre).dtype != DType::kF32 ||
        fuser.FindReaders(pre).size() != 2) {
      continue;
    }
    const auto gelu = fuser.Find<Activation>([&](const Node& n) { return n.inputs[0] == pre; });
    const auto gradient = fuser.Find<ActivationGradient>(
        [&](const Node& n) { return n.inputs[1] == pre && n.inputs[0] != pre; });
    if (!gelu || !gradient) continue;
    const ActivationKind kind = static_cast<const Activation&>(*fuser.node(*gelu).function).kind();
    const ValueId dy = fuser.node(*gradient).inputs[0];
    const auto product =
        fuser.Find<LinearInputGradient>([&](const Node& n) { return n.outputs[0] == dy; });
    if (!IsGelu(kind) || !product || !fuser.OnlyReadBy(dy, *gradient)) continue;
    const ValueId y = fuser.node(*gelu).outputs[0];
    const ValueId dpre = fuser.node(*gradient).outputs[0];
    const auto& into = static_cast<const LinearInputGradient&>(*fuser.node(*product).function);
    fuser.Replace(*gradient, {std::make_shared<LinearInputGradientTimes>(into, is_bf16(dpre)),
                              {fuser.node(*product).inputs[0], fuser.node(*product).inputs[1], pre},
                              {dpre}});
    fuser.Erase(*product);
    fuser.Replace(
        i,
        {std::make_shared<LinearGelu>(linear, kind, is_bf16(y)), fuser.node(i).inputs, {y, pre}});
    fuser.Erase(*gelu);
  }
}

OutputSpecs LinearGeluTanh::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, linear_.Infer(inputs));
  if (keeps_) outputs.push_back(outputs[0]);
  return outputs;
}

OutputSpecs LinearGeluTanhInputGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, linear_.Infer(inputs.first(2)));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], outputs[0].shape, "the value", outputs[0].dtype));
  return outputs;
}

void FuseLinearGeluTanh(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<Linear>(i)) continue;
    const auto& linear = static_cast<const Linear&>(*fuser.node(i).function);
    const ValueId pre = fuser.node(i).outputs[0];
    const auto gelu = fuser.Find<Activation>(
        [&](const Node& node) { return node.inputs[0] == pre && IsGeluTanh<Activation>(node); });
    if (linear.relu() || !gelu) continue;
    const bool keeps = fuser.FindReaders(pre).size() > 1 || !fuser.IsActivation(pre);
    if (keeps && fuser.spec(pre).shape[1] % kColumns != 0) continue;
    Node fused{std::make_shared<LinearGeluTanh>(linear.order(), keeps), fuser.node(i).inputs,
               fuser.node(*gelu).outputs};
    if (keeps) fused.outputs.push_back(pre);
    fuser.Erase(*gelu);
    fuser.Replace(i, std::move(fused));
  }
}

void FuseLinearGeluTanhInputGradient(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (!fuser.Is<LinearInputGradient>(i)) continue;
    const Node& product = fuser.node(i);
    const ValueId dy = product.outputs[0];
    const std::vector<std::size_t> readers = fuser.FindReaders(dy);
    if (readers.size() != 1 || !fuser.IsActivation(dy)) continue;
    const Node& gelu = fuser.node(readers[0]);
    if (!IsGeluTanh<ActivationGradient>(gelu) || gelu.inputs[0] != dy || gelu.inputs[1] == dy ||
        fuser.spec(dy).shape[1] % kColumns != 0) {
      continue;
    }
    const WeightOrder order = static_cast<const LinearInputGradient&>(*product.function).order();
    Node fused{std::make_shared<LinearGeluTanhInputGradient>(order),
               {product.inputs[0], product.inputs[1], gelu.inputs[1]},
               gelu.outputs};
    fuser.Replace(readers[0], std::move(fused));
    fuser.Erase(i);
  }
}

}  // namespace gaccd
