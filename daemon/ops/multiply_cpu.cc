#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/multiply.h"

namespace gaccd {
namespace {

template <typename T>
KernelResult MakeMultiply(const KernelRequest& request) {
  const auto factor = static_cast<T>(static_cast<const Multiply&>(request.function).factor());
  const std::int64_t elements = Elements(request.inputs[0].shape);
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, [=](const CallKernel::Call& call) {
        const T* x = call.in<T>(0);
        T* y = call.out<T>(0);
        for (std::int64_t i = 0; i < elements; ++i) y[i] = factor * x[i];
        return Status::Ok();
      }));
}

}  // namespace

KernelResult MakeMultiplyCpu(const KernelRequest& request) {
  return request.inputs[0].dtype == DType::kF64 ? MakeMultiply<double>(request)
                                                : MakeMultiply<float>(request);
}

}  // namespace gaccd
