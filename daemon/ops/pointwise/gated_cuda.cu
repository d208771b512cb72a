// 16 bytes per thread and array, as in elementwise_cuda.cu.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Calls at(i) for every value, or for every vector of several values.
template <int kWidth, typename At>
__device__ inline void ForVectors(std::int64_t elements, const At& at) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t vectors = elements / kWidth;
  for (std::int64_t v = thread; v < vectors; v += threads) at.template Run<kWidth>(v * kWidth);
  for (std::int64_t i = vectors * kWidth + thread; i < elements; i += threads)
    at.template Run<1>(i);
}

template <typename Formula, typename T>
struct ForwardAt {
  const T* a;
  const T* b;
  T* y;

  template <int kWidth>
  __device__ void Run(std::int64_t i) const {
    float of_a[kWidth], of_b[kWidth];
    Load<Use::kAgain>(a + i, of_a);
    Load<Use::kAgain>(b + i, of_b);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) of_a[v] = Formula::Of(of_a[v]) * of_b[v];
    Store<Use::kAgain>(y + i, of_a);
  }
};

template <typename Formula, typename Slope, typename T>
struct BackwardAt {
  const T* dy;
  const T* a;
  const T* b;
  T* da;
  T* db;

  template <int kWidth>
  __device__ void Run(std::int64_t i) const {
    float of_dy[kWidth], of_a[kWidth], of_b[kWidth];
    Load<Use::kAgain>(dy + i, of_dy);
    Load<Use::kAgain>(a + i, of_a);
    Load<Use::kAgain>(b + i, of_b);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      const GatedGradients at = GatedGradientsAt<Formula, Slope>(of_dy[v], of_a[v], of_b[v]);
      of_a[v] = at.da;
      of_b[v] = at.db;
    }
    Store<Use::kAgain>(da + i, of_a);
    Store<Use::kAgain>(db + i, of_b);
  }
};

template <typename At, int kWidth>
__global__ void __launch_bounds__(kThreads) GatedKernel(At at, std::int64_t elements) {
  ForVectors<kWidth>(elements, at);
}

template <typename T, typename At>
Status LaunchGated(const KernelStream& on, const char* what, bool aligned, const At& at,
                   std::int64_t elements) {
  if (elements == 0) return Status::Ok();
  constexpr int kWidth = kVectorWidth<T>;
  const unsigned blocks = on.Blocks(elements, kThreads * (aligned ? kWidth : 1));
  return Launch(aligned ? GatedKernel<At, kWidth> : GatedKernel<At, 1>, {blocks, kThreads},
                on.stream, what, at, elements);
}

bool AllAligned(const Call& c) {
  for (const void* pointer : c.inputs) {
    if (!IsVectorAligned(pointer)) return false;
  }
  for (const void* pointer : c.outputs) {
    if (!IsVectorAligned(pointer)) return false;
  }
  return true;
}

}  // namespace

KernelResult MakeGatedCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const Gated&>(request.function).kind();
  return MakeTypedCall(
      request, [kind, on = request.on, n = request.elements()](auto t, const Call& c) {
        using T = decltype(t);
        return WithActivation<ExactMath>(kind, [&](auto formula, auto) {
          const ForwardAt<decltype(formula), T> at{c.in<T>(0), c.in<T>(1), c.out<T>(0)};
          return LaunchGated<T>(on, "gated", AllAligned(c), at, n);
        });
      });
}

KernelResult MakeGatedGradientCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const GatedGradient&>(request.function).kind();
  return MakeTypedCall(request,
                       [kind, on = request.on, n = request.elements()](auto t, const Call& c) {
                         using T = decltype(t);
                         return WithActivation<ExactMath>(kind, [&](auto formula, auto slope) {
                           const BackwardAt<decltype(formula), decltype(slope), T> at{
                               c.in<T>(0), c.in<T>(1), c.in<T>(2), c.out<T>(0), c.out<T>(1)};
                           return LaunchGated<T>(on, "gated_gradient", AllAligned(c), at, n);
                         });
                       });
}

}  // namespace gaccd
