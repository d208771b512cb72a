#include "daemon/ops/layout/prepend_row.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs PrependRow::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.size() != 1) GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckSequences(inputs[0], length_, "the input"));
  const Shape& x = inputs[0].shape;
  if (inputs.size() == 2) GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], {1, x[1]}, "the row"));
  return std::vector<ValueSpec>{{{x[0] + x[0] / length_, x[1]}, inputs[0].dtype}};
}

Status PrependRow::Gradient(GradientScope& scope) const {
  const ValueId dy = scope.OutputGradient(0);
  if (scope.NeedsGradient(0)) {
    GACCD_RETURN_IF_ERROR(
        scope.SetInputGradient(0, std::make_shared<DropFirstRow>(length_ + 1), {dy}));
  }
  if (scope.inputs() == 1 || !scope.NeedsGradient(1)) return Status::Ok();
  return scope.SetInputGradient(1, std::make_shared<PositionsGradient>(length_ + 1, 1), {dy});
}

OutputSpecs DropFirstRow::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckSequences(inputs[0], length_, "the input"));
  if (length_ < 2) {
    return Status(ErrorKind::kConfig, StrCat("expected sequences of at least 2, found ", length_));
  }
  const Shape& x = inputs[0].shape;
  return std::vector<ValueSpec>{{{x[0] - x[0] / length_, x[1]}, inputs[0].dtype}};
}

Status DropFirstRow::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<PrependRow>(length_ - 1),
                                {scope.OutputGradient(0)});
}

KernelResult MakePrependRowCpu(const KernelRequest& request) {
  const std::int64_t columns = request.inputs[0].shape[1];
  const std::int64_t rest = static_cast<const PrependRow&>(request.function).length() * columns;
  const std::int64_t sequences = Elements(request.outputs[0].shape) / (rest + columns);
  const bool has_row = request.inputs.size() == 2;
  return MakeCall(request, [=](const CallKernel::Call& call) {
    const auto* x = call.in<float>(0);
    auto* y = call.out<float>(0);
    for (std::int64_t b = 0; b < sequences; ++b, x += rest) {
      y = has_row ? std::copy_n(call.in<float>(1), columns, y) : std::fill_n(y, columns, 0.0F);
      y = std::copy_n(x, rest, y);
    }
    return Status::Ok();
  });
}

KernelResult MakeDropFirstRowCpu(const KernelRequest& request) {
  const std::int64_t columns = request.inputs[0].shape[1];
  const std::int64_t all = static_cast<const DropFirstRow&>(request.function).length() * columns;
  const std::int64_t sequences = Elements(request.inputs[0].shape) / all;
  return MakeCall(request, [=](const CallKernel::Call& call) {
    const auto* x = call.in<float>(0);
    auto* y = call.out<float>(0);
    for (std::int64_t b = 0; b < sequences; ++b, x += all) {
      y = std::copy_n(x + columns, all - columns, y);
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
