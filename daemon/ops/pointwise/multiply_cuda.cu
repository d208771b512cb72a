#include <memory>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/multiply.h"

namespace gaccd {
namespace {

template <typename T>
__global__ void __launch_bounds__(kThreads)
    MultiplyKernel(const T* x, T factor, T* y, std::int64_t elements) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = thread; i < elements; i += threads) y[i] = factor * x[i];
}

template <typename T>
KernelResult MakeMultiply(const CudaRequest& request) {
  const auto factor = static_cast<T>(static_cast<const Multiply&>(request.function).factor());
  const std::int64_t elements = request.elements();
  const KernelStream on = request.on;
  return MakeCall(request, [=](const CallKernel::Call& call) {
    return Launch(MultiplyKernel<T>, {on.Blocks(elements, kThreads), kThreads}, on.stream,
                  "multiply", call.in<T>(0), factor, call.out<T>(0), elements);
  });
}

}  // namespace

KernelResult MakeMultiplyCuda(const CudaRequest& request) {
  return request.dtype() == DType::kF64 ? MakeMultiply<double>(request)
                                        : MakeMultiply<float>(request);
}

}  // namespace gaccd
