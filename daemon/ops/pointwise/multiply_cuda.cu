
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/multiply.h"

namespace gaccd {
namespace {

template <typename T>
__global__ void __launch_bounds__(kThreads)
    MultiplyKernel(const T* x, T factor, T* y, std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) y[i] = factor * x[i];
}

template <typename T>
KernelResult MakeMultiply(const CudaRequest& request) {
  const auto factor = static_cast<T>(static_cast<const Multiply&>(request.function).factor());
  const std::int64_t elements = request.elements();
  const KernelStream on = request.on;
  return MakeCall(request, [=](const CallKernel::Call& call) {
    return LaunchForEach(MultiplyKernel<T>, on, elements, "multiply", call.in<T>(0), factor,
                         call.out<T>(0), elements);
  });
}

}  // namespace

KernelResult MakeMultiplyCuda(const CudaRequest& request) {
  return request.dtype() == DType::kF64 ? MakeMultiply<double>(request)
                                        : MakeMultiply<float>(request);
}

}  // namespace gaccd
