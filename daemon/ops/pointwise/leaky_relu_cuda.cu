#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/ops/pointwise/leaky_relu.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// dy null: y = f(x); else dx = f'(x) dy.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    LeakyReluKernel(const T* dy, const T* x, LeakyReluFormula formula, T* to,
                    std::int64_t elements) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < elements; i += threads) {
    const float value = ToFloat(x[i]);
    to[i] =
        FromFloat<T>(dy == nullptr ? formula.Of(value) : formula.GradientOf(ToFloat(dy[i]), value));
  }
}

}  // namespace

KernelResult MakeLeakyReluCuda(const CudaRequest& request) {
  const LeakyReluFormula formula{static_cast<const LeakyRelu&>(request.function).slope()};
  return MakeTypedCall(request, [=, on = request.on, n = request.elements()](auto t,
                                                                             const Call& c) {
    using T = decltype(t);
    return Launch(LeakyReluKernel<T>, {on.Blocks(n, kThreads), kThreads}, on.stream, "leaky_relu",
                  static_cast<const T*>(nullptr), c.in<T>(0), formula, c.out<T>(0), n);
  });
}

KernelResult MakeLeakyReluGradientCuda(const CudaRequest& request) {
  const LeakyReluFormula formula{static_cast<const LeakyReluGradient&>(request.function).slope()};
  return MakeTypedCall(
      request, [=, on = request.on, n = request.elements()](auto t, const Call& c) {
        using T = decltype(t);
        return Launch(LeakyReluKernel<T>, {on.Blocks(n, kThreads), kThreads}, on.stream,
                      "leaky_relu_gradient", c.in<T>(0), c.in<T>(1), formula, c.out<T>(0), n);
      });
}

}  // namespace gaccd
