// 16 bytes per thread and array, as in elementwise_cuda.cu.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

template <typename Formula, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    GatedKernel(const T* a, const T* b, T* y, std::int64_t elements) {
  ForVectors<kWidth>(elements, [=](auto width, std::int64_t i) {
    float of_a[width], of_b[width];
    Load<Use::kAgain>(a + i, of_a);
    Load<Use::kAgain>(b + i, of_b);
#pragma unroll
    for (int v = 0; v < width; ++v) of_a[v] = Formula::Apply(of_a[v]) * of_b[v];
    Store<Use::kAgain>(y + i, of_a);
  });
}

template <typename Formula, typename Slope, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    GatedGradientKernel(const T* dy, const T* a, const T* b, T* da, T* db, std::int64_t elements) {
  ForVectors<kWidth>(elements, [=](auto width, std::int64_t i) {
    float of_dy[width], of_a[width], of_b[width];
    Load<Use::kAgain>(dy + i, of_dy);
    Load<Use::kAgain>(a + i, of_a);
    Load<Use::kAgain>(b + i, of_b);
#pragma unroll
    for (int v = 0; v < width; ++v) {
      const GatedGradients at = GatedGradientsAt<Formula, Slope>(of_dy[v], of_a[v], of_b[v]);
      of_a[v] = at.da;
      of_b[v] = at.db;
    }
    Store<Use::kAgain>(da + i, of_a);
    Store<Use::kAgain>(db + i, of_b);
  });
}

}  // namespace

KernelResult MakeGatedCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const Gated&>(request.function).kind();
  return MakeTypedCall(
      request, [kind, on = request.on, n = request.elements()](auto t, const Call& c) -> Status {
        using T = decltype(t);
        if (n == 0) return Status::Ok();
        const int width = IsVectorAligned(c) ? kVectorWidth<T> : 1;
        return WithActivation<ExactMath>(kind, [&](auto formula, auto) {
          using Formula = decltype(formula);
          return Launch(
              width > 1 ? GatedKernel<Formula, kVectorWidth<T>, T> : GatedKernel<Formula, 1, T>,
              {on.Blocks(n, kThreads * width), kThreads}, on.stream, "gated", c.in<T>(0),
              c.in<T>(1), c.out<T>(0), n);
        });
      });
}

KernelResult MakeGatedGradientCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const GatedGradient&>(request.function).kind();
  return MakeTypedCall(
      request, [kind, on = request.on, n = request.elements()](auto t, const Call& c) -> Status {
        using T = decltype(t);
        if (n == 0) return Status::Ok();
        const int width = IsVectorAligned(c) ? kVectorWidth<T> : 1;
        return WithActivation<ExactMath>(kind, [&](auto formula, auto slope) {
          using Formula = decltype(formula);
          using Slope = decltype(slope);
          return Launch(width > 1 ? GatedGradientKernel<Formula, Slope, kVectorWidth<T>, T>
                                  : GatedGradientKernel<Formula, Slope, 1, T>,
                        {on.Blocks(n, kThreads * width), kThreads}, on.stream, "gated_gradient",
                        c.in<T>(0), c.in<T>(1), c.in<T>(2), c.out<T>(0), c.out<T>(1), n);
        });
      });
}

}  // namespace gaccd
