#include "daemon/ops/layout/rearrange.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

Shape ResultShape(const Rearrangement& order) {
  Shape shape;
  for (const Rearrangement::Dimension& one : order.to) shape.push_back(one.size);
  return shape;
}

// Checks that every index of y maps to a valid index of x.
Status CheckOrder(const Rearrangement& order) {
  std::vector<int> uses(order.from.size(), 0);
  bool fits = order.to.size() <= StridedNest::kMaxRank;
  for (const Rearrangement::Dimension& one : order.to) {
    fits = fits && one.size >= 0 && one.source < std::ssize(order.from);
    if (!fits || one.source < 0) continue;
    const auto source = static_cast<std::size_t>(one.source);
    ++uses[source];
    const std::int64_t last = one.start + one.step * (one.size - 1);
    fits = one.size == 0 || (std::min(one.start, last) >= 0 && one.step != 0 &&
                             std::max(one.start, last) < order.from[source]);
  }
  if (fits && std::ranges::all_of(uses, [](int count) { return count == 1; })) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("expected each dimension of ", ToString(order.from), " once in ",
                 ToString(ResultShape(order)), " and indices within, in at most ",
                 StridedNest::kMaxRank, " dimensions")};
}

bool Repeats(const Rearrangement& order) {
  return std::ranges::any_of(order.to, [](const auto& one) { return one.source < 0; });
}

}  // namespace

OutputSpecs Rearrange::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  if (inputs[0].dtype != DType::kI32) GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the input"));
  GACCD_RETURN_IF_ERROR(CheckOrder(order_));
  if (Elements(inputs[0].shape) != Elements(order_.from)) {
    return Status(ErrorKind::kConfig, StrCat("expected as many elements as ", ToString(order_.from),
                                             " has, found ", ToString(inputs[0].shape)));
  }
  return std::vector<ValueSpec>{{ResultShape(order_), inputs[0].dtype}};
}

Status Rearrange::Gradient(GradientScope& scope) const {
  if (!Repeats(order_)) {
    GACCD_ASSIGN_OR_RETURN(const bool added, scope.AddToInputGradient(
                                                 0, std::make_shared<RearrangeGradientAdd>(order_),
                                                 {scope.OutputGradient(0)}));
    if (added) return Status::Ok();
  }
  return scope.SetInputGradient(
      0, std::make_shared<RearrangeGradient>(order_, Shape(scope.input_shape(0))),
      {scope.OutputGradient(0)});
}

OutputSpecs RearrangeGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckOrder(order_));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(
      CheckShapeIs(inputs[0], ResultShape(order_), "the gradient", inputs[0].dtype));
  return std::vector<ValueSpec>{{x_, inputs[0].dtype}};
}

Status RearrangeGradient::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Rearrange>(order_), {scope.OutputGradient(0)});
}

OutputSpecs RearrangeGradientAdd::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckOrder(order_));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the sum"));
  GACCD_RETURN_IF_ERROR(
      CheckShapeIs(inputs[1], ResultShape(order_), "the gradient", inputs[0].dtype));
  if (!Repeats(order_) && Elements(inputs[0].shape) == Elements(order_.from)) {
    return std::vector<ValueSpec>{inputs[0]};
  }
  return Status(ErrorKind::kConfig,
                StrCat("expected as many elements as ", ToString(order_.from),
                       " has, and none that repeats, found ", ToString(inputs[0].shape)));
}

KernelResult MakeRearrangeCpu(const KernelRequest& request) {
  const auto made = MakeNest(static_cast<const Rearrange&>(request.function).order(), false);
  return MakeCall(request, [made](const Call& c) {  // i32 is copied as the f32 with the same bits
    const auto* x = c.in<std::uint32_t>(0) + made.first;
    auto* y = c.out<std::uint32_t>(0);
    ForEachRun(made.nest, [&](const std::int64_t* at, const StridedNest::Dimension& run) {
      const auto* from = x + at[0];
      auto* to = y + at[1];
      if (run.steps[0] == 1) {
        std::copy_n(from, run.size, to);
      } else {
        for (std::int64_t i = 0; i < run.size; ++i) to[i * run.steps[1]] = from[i * run.steps[0]];
      }
    });
    return Status::Ok();
  });
}

namespace {

void AddRuns(const RearrangeNest& made, const float* dy, float* dx) {
  ForEachRun(made.nest, [&](const std::int64_t* at, const StridedNest::Dimension& run) {
    const auto* from = dy + at[1];
    auto* to = dx + made.first + at[0];
    for (std::int64_t i = 0; i < run.size; ++i) to[i * run.steps[0]] += from[i * run.steps[1]];
  });
}

}  // namespace

KernelResult MakeRearrangeGradientCpu(const KernelRequest& request) {
  const auto made = MakeNest(static_cast<const RearrangeGradient&>(request.function).order(), true);
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeCall(request, [made, elements](const Call& c) {
    std::fill_n(c.out<float>(0), elements, 0.0F);
    AddRuns(made, c.in<float>(0), c.out<float>(0));
    return Status::Ok();
  });
}

KernelResult MakeRearrangeGradientAddCpu(const KernelRequest& request) {
  const auto made =
      MakeNest(static_cast<const RearrangeGradientAdd&>(request.function).order(), false);
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeCall(request, [made, elements](const Call& c) {
    if (c.in<float>(0) != c.out<float>(0)) std::copy_n(c.in<float>(0), elements, c.out<float>(0));
    AddRuns(made, c.in<float>(1), c.out<float>(0));
    return Status::Ok();
  });
}

}  // namespace gaccd
