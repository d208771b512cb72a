#include "daemon/ops/product/linear.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/fuse.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

struct Widths {
  std::int64_t out = 0;
  std::int64_t in = 0;
};
Widths OutAndIn(const Shape& weight, WeightOrder order) {
  if (order == WeightOrder::kInOut) return {.out = weight[1], .in = weight[0]};
  return {.out = weight[0], .in = weight[1]};
}

DType OutputDType(LinearSums sums, const ValueSpec& input) {
  return sums == LinearSums::kF32 ? DType::kF32 : input.dtype;
}

// For rows that are multiplied by a weight.
double FlopsByWeight(std::span<const ValueSpec> inputs) {
  return 2.0 * static_cast<double>(inputs[0].shape[0] * Elements(inputs[1].shape));
}

}  // namespace

OutputSpecs Linear::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.size() != 2 && inputs.size() != 3) {
    return Status(ErrorKind::kConfig, StrCat("expected 2 or 3 inputs, found ", inputs.size()));
  }
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the input"));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[1], "the weight", DType::kF32));
  const auto [out, in] = OutAndIn(inputs[1].shape, order_);
  if (inputs[0].shape[1] != in) {
    return Status(ErrorKind::kConfig,
                  StrCat("the weight ", ToString(inputs[1].shape), " expects inputs of width ", in,
                         ", found ", ToString(inputs[0].shape)));
  }
  if (inputs.size() == 3) GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {out}, "the bias"));
  return std::vector<ValueSpec>{{{inputs[0].shape[0], out}, OutputDType(sums_, inputs[0])}};
}

double Linear::ProductFlops(std::span<const ValueSpec> inputs) const {
  return FlopsByWeight(inputs);
}

Status Linear::Gradient(GradientScope& scope) const {
  const ValueId dy = scope.OutputGradient(0);
  if (scope.NeedsGradient(0)) {
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(0, std::make_shared<LinearInputGradient>(order_),
                                                 {dy, scope.input(1)}));
  }
  std::vector<ValueId> factors = {dy, scope.input(0)};
  if (order_ == WeightOrder::kInOut) std::swap(factors[0], factors[1]);
  GACCD_RETURN_IF_ERROR(
      scope.SetInputGradient(1, std::make_shared<LinearWeightGradient>(), std::move(factors)));
  if (scope.inputs() == 2) return Status::Ok();
  return scope.SetInputGradient(2, std::make_shared<BiasGradient>(), {dy});
}

std::shared_ptr<const Function> Linear::FoldWith(const Function& next) const {
  if (relu_ || dynamic_cast<const Relu*>(&next) == nullptr) return nullptr;
  return std::make_shared<Linear>(true, order_, sums_);
}

OutputSpecs LinearInputGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[1], "the weight"));
  const std::int64_t in = OutAndIn(inputs[1].shape, order_).in;
  return std::vector<ValueSpec>{{{inputs[0].shape[0], in}, OutputDType(sums_, inputs[0])}};
}

double LinearInputGradient::ProductFlops(std::span<const ValueSpec> inputs) const {
  return FlopsByWeight(inputs);
}

OutputSpecs LinearWeightGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the first matrix"));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[1], "the second matrix"));
  if (inputs[0].shape[0] != inputs[1].shape[0]) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected two matrices of as many rows, found ", ToString(inputs[0].shape),
                         " and ", ToString(inputs[1].shape)));
  }
  return std::vector<ValueSpec>{{{inputs[0].shape[1], inputs[1].shape[1]}, DType::kF32}};
}

double LinearWeightGradient::ProductFlops(std::span<const ValueSpec> inputs) const {
  return 2.0 * static_cast<double>(Elements(inputs[0].shape) * inputs[1].shape[1]);
}

OutputSpecs BiasGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const bool is_image = inputs[0].shape.size() == 4;
  GACCD_RETURN_IF_ERROR(is_image ? CheckImages(inputs[0], "the gradient")
                                 : CheckMatrix(inputs[0], "the gradient"));
  return std::vector<ValueSpec>{{{inputs[0].shape.back()}, DType::kF32}};
}

OutputSpecs LinearWeightBiasGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, LinearWeightGradient().Infer(inputs));
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> bias,
                         BiasGradient().Infer(inputs.subspan(place_of_dy(), 1)));
  outputs.push_back(bias[0]);
  return outputs;
}

double LinearWeightBiasGradient::ProductFlops(std::span<const ValueSpec> inputs) const {
  return LinearWeightGradient().ProductFlops(inputs);
}

void FuseLinearGradients(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    for (const WeightOrder order : {WeightOrder::kOutIn, WeightOrder::kInOut}) {
      if (!fuser.Is<LinearWeightGradient>(i)) break;
      auto function = std::make_shared<LinearWeightBiasGradient>(order);
      const std::vector<ValueId>& factors = fuser.node(i).inputs;
      const ValueId dy = factors[function->place_of_dy()];
      const auto j =
          fuser.Find<BiasGradient>([&](const Node& node) { return node.inputs[0] == dy; });
      if (!j || !fuser.WritesParameterGradient(i) || !fuser.WritesParameterGradient(*j)) continue;
      // Both gradients are inputs of no node, so the position is free; dy and x must be available
      // at the first one.
      const std::size_t place = std::min(i, *j);
      if (!fuser.ComputedBefore(factors[0], place) || !fuser.ComputedBefore(factors[1], place))
        continue;
      Node fused{
          std::move(function), factors, {fuser.node(i).outputs[0], fuser.node(*j).outputs[0]}};
      fuser.Erase(std::max(i, *j));
      fuser.Replace(place, std::move(fused));
    }
  }
}

}  // namespace gaccd
