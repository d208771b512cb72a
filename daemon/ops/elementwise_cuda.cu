// Streams: every value is read once and written once, so the bytes per second of the memory are all
// that counts. 16 bytes a thread and array, all threads of the GPU at once.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/elementwise.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksPerMultiprocessor = 8;  // 2048 threads: all that one holds

// out[i] = Formula(a[i]) or Formula(a[i], b[i]); kWidth values at a time.
template <typename Formula, bool kTwo, int kWidth, typename A, typename B, typename Out>
__device__ inline void MapAt(const A* a, const B* b, Out* out, std::int64_t i) {
  float x[kWidth];
  Load<Use::kAgain>(a + i, x);
  if constexpr (kTwo) {
    float y[kWidth];
    Load<Use::kAgain>(b + i, y);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) x[v] = Formula::Of(x[v], y[v]);
  } else {
#pragma unroll
    for (int v = 0; v < kWidth; ++v) x[v] = Formula::Of(x[v]);
  }
  Store<Use::kAgain>(out + i, x);
}

template <typename Formula, bool kTwo, int kWidth, typename A, typename B, typename Out>
__global__ void __launch_bounds__(kThreads)
    MapKernel(const A* a, const B* b, Out* out, std::int64_t elements) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t vectors = elements / kWidth;
  for (std::int64_t v = thread; v < vectors; v += threads) {
    MapAt<Formula, kTwo, kWidth>(a, b, out, v * kWidth);
  }
  for (std::int64_t i = vectors * kWidth + thread; i < elements; i += threads) {
    MapAt<Formula, kTwo, 1>(a, b, out, i);
  }
}

template <typename Formula, bool kTwo, typename A, typename B, typename Out>
Status Map(const KernelStream& on, const char* what, const void* a, const void* b, void* out,
           std::int64_t elements) {
  if (elements == 0) return Status::Ok();
  constexpr int kWidth = std::max({kVectorWidth<A>, kVectorWidth<B>, kVectorWidth<Out>});
  const bool aligned = IsVectorAligned(a) && IsVectorAligned(b) && IsVectorAligned(out);
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  const unsigned blocks = std::min(most, BlocksFor(elements, kThreads * (aligned ? kWidth : 1)));
  return Launch(aligned ? MapKernel<Formula, kTwo, kWidth, A, B, Out>
                        : MapKernel<Formula, kTwo, 1, A, B, Out>,
                {blocks, kThreads}, on.stream, what, static_cast<const A*>(a),
                static_cast<const B*>(b), static_cast<Out*>(out), elements);
}

__global__ void __launch_bounds__(kThreads)
    DivideKernel(const float* in, double count, float* out, std::int64_t elements) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = thread; i < elements; i += threads) {
    out[i] = static_cast<float>(static_cast<double>(in[i]) / count);
  }
}

template <typename T, bool kRelu>
__global__ void __launch_bounds__(kThreads)
    AddBiasKernel(const T* bias, T* y, std::int64_t elements, std::int64_t columns) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = thread; i < elements; i += threads) {
    const float sum = ToFloat(y[i]) + ToFloat(bias[i % columns]);
    y[i] = FromFloat<T>(kRelu ? ReluFormula::Of(sum) : sum);
  }
}

template <typename T>
Status AddBias(const KernelStream& on, const void* bias, void* y, Matrix size, bool relu) {
  const std::int64_t elements = size.rows * size.columns;
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  return Launch(relu ? AddBiasKernel<T, true> : AddBiasKernel<T, false>,
                {std::min(most, BlocksFor(elements, kThreads)), kThreads}, on.stream, "add_bias",
                static_cast<const T*>(bias), static_cast<T*>(y), elements, size.columns);
}

// All arrays of one type.
template <typename Formula, bool kTwo>
Status MapSame(const KernelStream& on, const char* what, DType dtype, const void* a, const void* b,
               void* out, std::int64_t elements) {
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Map<Formula, kTwo, T, T, T>(on, what, a, b, out, elements);
  });
}

}  // namespace

Status EnqueueAdd(const KernelStream& on, DType dtype, const void* a, const void* b, void* c,
                  std::int64_t elements) {
  return MapSame<AddFormula, true>(on, "add", dtype, a, b, c, elements);
}

Status EnqueueRelu(const KernelStream& on, DType dtype, const void* x, void* y,
                   std::int64_t elements) {
  return MapSame<ReluFormula, false>(on, "relu", dtype, x, nullptr, y, elements);
}

Status EnqueueActivation(const KernelStream& on, ActivationKind kind, DType dtype, const void* x,
                         void* y, std::int64_t elements) {
  switch (kind) {
    case ActivationKind::kGelu:
      return MapSame<GeluFormula, false>(on, "gelu", dtype, x, nullptr, y, elements);
    case ActivationKind::kGeluTanh:
      return MapSame<GeluTanhFormula, false>(on, "gelu_tanh", dtype, x, nullptr, y, elements);
    case ActivationKind::kTanh:
      return MapSame<TanhFormula, false>(on, "tanh", dtype, x, nullptr, y, elements);
    case ActivationKind::kSilu:
      return MapSame<SiluFormula, false>(on, "silu", dtype, x, nullptr, y, elements);
  }
  return {ErrorKind::kInternal, "an activation of no kind"};
}

Status EnqueueActivationGradient(const KernelStream& on, ActivationKind kind, DType dtype,
                                 const void* dy, const void* kept, void* dx,
                                 std::int64_t elements) {
  switch (kind) {
    case ActivationKind::kGelu:
      return MapSame<GeluGradientFormula, true>(on, "gelu_gradient", dtype, dy, kept, dx, elements);
    case ActivationKind::kGeluTanh:
      return MapSame<GeluTanhGradientFormula, true>(on, "gelu_tanh_gradient", dtype, dy, kept, dx,
                                                    elements);
    case ActivationKind::kTanh:
      return MapSame<TanhGradientFormula, true>(on, "tanh_gradient", dtype, dy, kept, dx, elements);
    case ActivationKind::kSilu:
      return MapSame<SiluGradientFormula, true>(on, "silu_gradient", dtype, dy, kept, dx, elements);
  }
  return {ErrorKind::kInternal, "an activation of no kind"};
}

Status EnqueueDivide(const KernelStream& on, const float* in, std::int64_t elements,
                     std::int64_t count, float* out) {
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  return Launch(DivideKernel, {std::min(most, BlocksFor(elements, kThreads)), kThreads}, on.stream,
                "divide by a count", in, static_cast<double>(count), out, elements);
}

Status EnqueueAddBias(const KernelStream& on, DType dtype, const void* bias, void* y, Matrix size,
                      bool relu) {
  const auto add = WithFloat(dtype, [](auto t) { return &AddBias<decltype(t)>; });
  return add(on, bias, y, size, relu);
}

Status EnqueueReluGradient(const KernelStream& on, DType dtype, const void* dy, const void* y,
                           void* dx, std::int64_t elements) {
  return MapSame<ReluGradientFormula, true>(on, "relu_gradient", dtype, dy, y, dx, elements);
}

Status EnqueueCast(const KernelStream& on, DType from, const void* in, DType to, void* out,
                   std::int64_t elements) {
  if (from == to)
    return MapSame<IdentityFormula, false>(on, "cast", from, in, nullptr, out, elements);
  return WithHalf(to == DType::kF32 ? from : to, [&](auto t) {
    using T = decltype(t);
    return to == DType::kF32
               ? Map<IdentityFormula, false, T, T, float>(on, "cast", in, nullptr, out, elements)
               : Map<IdentityFormula, false, float, float, T>(on, "cast", in, nullptr, out,
                                                              elements);
  });
}

Status EnqueueAccumulate(const KernelStream& on, DType dtype, const void* a, float* gradient,
                         std::int64_t elements, bool add) {
  if (!add) return EnqueueCast(on, dtype, a, DType::kF32, gradient, elements);
  return WithFloat(dtype, [&](auto t) {
    return Map<AddFormula, true, decltype(t), float, float>(on, "accumulate", a, gradient, gradient,
                                                            elements);
  });
}

}  // namespace gaccd
