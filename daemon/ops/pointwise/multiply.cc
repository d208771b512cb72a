#include "daemon/ops/pointwise/multiply.h"

#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Multiply::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  if (inputs[0].dtype != DType::kF32 && inputs[0].dtype != DType::kF64) {
    return Status(ErrorKind::kConfig, StrCat("expected f32 or f64, found ", Name(inputs[0].dtype)));
  }
  return std::vector<ValueSpec>{inputs[0]};
}

Status Multiply::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Multiply>(factor_), {scope.OutputGradient(0)});
}

namespace {

template <typename T>
KernelResult MakeMultiply(const KernelRequest& request) {
  const auto factor = static_cast<T>(static_cast<const Multiply&>(request.function).factor());
  const std::int64_t elements = Elements(request.inputs[0].shape);
  return MakeCall(request, [=](const CallKernel::Call& call) {
    const T* x = call.in<T>(0);
    T* y = call.out<T>(0);
    for (std::int64_t i = 0; i < elements; ++i) y[i] = factor * x[i];
    return Status::Ok();
  });
}

}  // namespace

KernelResult MakeMultiplyCpu(const KernelRequest& request) {
  return request.inputs[0].dtype == DType::kF64 ? MakeMultiply<double>(request)
                                                : MakeMultiply<float>(request);
}

}  // namespace gaccd
