#include "daemon/ops/pointwise/leaky_relu.h"

#include "daemon/ops/call_kernel.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs LeakyRelu::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the input"));
  return std::vector<ValueSpec>{inputs[0]};
}

Status LeakyRelu::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<LeakyReluGradient>(slope_),
                                {scope.OutputGradient(0), scope.input(0)});
}

OutputSpecs LeakyReluGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the value", inputs[0].dtype));
  return std::vector<ValueSpec>{inputs[0]};
}

KernelResult MakeLeakyReluCpu(const KernelRequest& request) {
  const LeakyReluFormula formula{static_cast<const LeakyRelu&>(request.function).slope()};
  const std::int64_t elements = Elements(request.inputs[0].shape);
  return MakeCall(request, [=](const CallKernel::Call& c) {
    const auto* x = c.in<float>(0);
    auto* y = c.out<float>(0);
    for (std::int64_t i = 0; i < elements; ++i) y[i] = formula.Of(x[i]);
    return Status::Ok();
  });
}

KernelResult MakeLeakyReluGradientCpu(const KernelRequest& request) {
  const LeakyReluFormula formula{static_cast<const LeakyReluGradient&>(request.function).slope()};
  const std::int64_t elements = Elements(request.inputs[0].shape);
  return MakeCall(request, [=](const CallKernel::Call& c) {
    const auto* dy = c.in<float>(0);
    const auto* x = c.in<float>(1);
    auto* dx = c.out<float>(0);
    for (std::int64_t i = 0; i < elements; ++i) dx[i] = formula.GradientOf(dy[i], x[i]);
    return Status::Ok();
  });
}

}  // namespace gaccd
