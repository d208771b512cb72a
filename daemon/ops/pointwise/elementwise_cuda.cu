// Every value is read and written once, so memory bandwidth is the limit: 16 bytes per thread and
// array, with all threads of the GPU.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {

namespace {

using Call = CallKernel::Call;

// Hardware exponential and division. Their relative errors of about 2^-21 disappear when the result
// is rounded to 16 bits; the exact functions would take longer than the memory accesses.
struct HardwareMath {
  GACCD_HOST_DEVICE static float Exp(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634F));
    return y;
#else
    return gaccd::Exp(x);
#endif
  }
  GACCD_HOST_DEVICE static float Divide(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdividef(a, b);  // 0 for b > 2^126
#else
    return a / b;
#endif
  }
};
template <typename T>
using MathFor = std::conditional_t<sizeof(T) == 2, HardwareMath, ExactMath>;

__global__ void __launch_bounds__(kThreads)
    DivideKernel(const float* in, double count, float* out, std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    out[i] = static_cast<float>(static_cast<double>(in[i]) / count);
  }
}

// out[i] = Formula(a[i]) or Formula(a[i], b[i]).
template <typename Formula, bool kTwo, int kWidth, typename A, typename B, typename Out>
__global__ void __launch_bounds__(kThreads)
    MapKernel(const A* a, const B* b, Out* out, std::int64_t elements) {
  ForVectors<kWidth>(elements, [=](auto width, std::int64_t i) {
    float x[width];
    Load<Use::kAgain>(a + i, x);
    if constexpr (kTwo) {
      float y[width];
      Load<Use::kAgain>(b + i, y);
#pragma unroll
      for (int v = 0; v < width; ++v) x[v] = Formula::Apply(x[v], y[v]);
    } else {
#pragma unroll
      for (int v = 0; v < width; ++v) x[v] = Formula::Apply(x[v]);
    }
    Store<Use::kAgain>(out + i, x);
  });
}

template <typename Formula, bool kTwo, typename A, typename B, typename Out>
Status Map(const KernelStream& on, const char* what, const void* a, const void* b, void* out,
           std::int64_t elements) {
  if (elements == 0) return Status::Ok();
  constexpr int kWidth = std::max({kVectorWidth<A>, kVectorWidth<B>, kVectorWidth<Out>});
  const bool aligned = IsVectorAligned(a) && IsVectorAligned(b) && IsVectorAligned(out);
  const unsigned blocks = on.Blocks(elements, kThreads * (aligned ? kWidth : 1));
  return Launch(aligned ? MapKernel<Formula, kTwo, kWidth, A, B, Out>
                        : MapKernel<Formula, kTwo, 1, A, B, Out>,
                {blocks, kThreads}, on.stream, what, static_cast<const A*>(a),
                static_cast<const B*>(b), static_cast<Out*>(out), elements);
}

// Relu gradient with dy = a + b.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    SumReluGradientKernel(const T* a, const T* b, const T* y, T* dx, std::int64_t elements) {
  ForVectors<kWidth>(elements, [=](auto width, std::int64_t i) {
    float first[width];
    float second[width];
    float result[width];
    Load<Use::kAgain>(a + i, first);
    Load<Use::kAgain>(b + i, second);
    Load<Use::kAgain>(y + i, result);
#pragma unroll
    for (int v = 0; v < width; ++v) {
      first[v] = ReluGradientFormula::Apply(first[v] + second[v], result[v]);
    }
    Store<Use::kAgain>(dx + i, first);
  });
}

// All arrays have the same type.
template <typename Formula, bool kTwo>
Status MapSame(const KernelStream& on, const char* what, DType dtype, const void* a, const void* b,
               void* out, std::int64_t elements) {
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Map<Formula, kTwo, T, T, T>(on, what, a, b, out, elements);
  });
}

template <typename Formula, bool kTwo>
KernelResult MakeMap(const CudaRequest& request, const char* what) {
  return MakeCall(request, [on = request.on, dtype = request.dtype(), n = request.elements(),
                            what](const Call& c) {
    return MapSame<Formula, kTwo>(on, what, dtype, c.inputs[0], c.optional_in<void>(1),
                                  c.outputs[0], n);
  });
}

}  // namespace

Status EnqueueRelu(const KernelStream& on, DType dtype, const void* x, void* y,
                   std::int64_t elements) {
  return MapSame<ReluFormula, false>(on, "relu", dtype, x, nullptr, y, elements);
}

Status EnqueueActivation(const KernelStream& on, ActivationKind kind, DType dtype, const void* x,
                         void* y, std::int64_t elements) {
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return WithActivation<MathFor<T>>(kind, [&](auto formula, auto) {
      return Map<decltype(formula), false, T, T, T>(on, "activation", x, nullptr, y, elements);
    });
  });
}

Status EnqueueActivationGradient(const KernelStream& on, ActivationKind kind, DType dtype,
                                 const void* dy, const void* kept, void* dx,
                                 std::int64_t elements) {
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return WithActivation<MathFor<T>>(kind, [&](auto, auto gradient) {
      return Map<decltype(gradient), true, T, T, T>(on, "activation gradient", dy, kept, dx,
                                                    elements);
    });
  });
}

Status EnqueueDivide(const KernelStream& on, const float* in, std::int64_t elements,
                     std::int64_t count, float* out) {
  return LaunchForEach(DivideKernel, on, elements, "divide by a count", in,
                       static_cast<double>(count), out, elements);
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

KernelResult MakeAddCuda(const CudaRequest& request) {
  return MakeMap<AddFormula, true>(request, "add");
}
KernelResult MakeReluCuda(const CudaRequest& request) {
  return MakeMap<ReluFormula, false>(request, "relu");
}
KernelResult MakeReluGradientCuda(const CudaRequest& request) {
  if (request.inputs.size() == 2) {
    return MakeMap<ReluGradientFormula, true>(request, "relu_gradient");
  }
  return MakeTypedCall(
      request, [on = request.on, elements = request.elements()](auto t, const Call& c) {
        using T = decltype(t);
        constexpr int kWidth = kVectorWidth<T>;
        return Launch(
            IsVectorAligned(c) ? SumReluGradientKernel<kWidth, T> : SumReluGradientKernel<1, T>,
            {on.Blocks(elements, kThreads * kWidth), kThreads}, on.stream, "relu_gradient",
            c.in<T>(0), c.in<T>(2), c.in<T>(1), c.out<T>(0), elements);
      });
}

KernelResult MakeActivationCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const Activation&>(request.function).kind();
  return MakeCall(request, [on = request.on, kind, dtype = request.dtype(),
                            n = request.elements()](const Call& c) {
    return EnqueueActivation(on, kind, dtype, c.inputs[0], c.outputs[0], n);
  });
}

KernelResult MakeActivationGradientCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const ActivationGradient&>(request.function).kind();
  return MakeCall(request, [on = request.on, kind, dtype = request.dtype(),
                            n = request.elements()](const Call& c) {
    return EnqueueActivationGradient(on, kind, dtype, c.inputs[0], c.inputs[1], c.outputs[0], n);
  });
}

KernelResult MakeCastCuda(const CudaRequest& request) {
  return MakeCall(request, [on = request.on, from = request.dtype(), to = request.outputs[0].dtype,
                            n = request.elements()](const Call& c) {
    return EnqueueCast(on, from, c.inputs[0], to, c.outputs[0], n);
  });
}

KernelResult MakeAccumulateCuda(const CudaRequest& request) {
  return MakeCall(
      request, [on = request.on, dtype = request.dtype(), n = request.elements()](const Call& c) {
        return EnqueueAccumulate(on, dtype, c.inputs[0], c.out<float>(0), n, c.add[0]);
      });
}

KernelResult MakeZerosCuda(const CudaRequest& request) {
  std::vector<std::size_t> bytes;
  for (const ValueSpec& spec : request.outputs) {
    bytes.push_back(static_cast<std::size_t>(spec.bytes()));
  }
  return MakeCall(request, [stream = request.on.stream, bytes = std::move(bytes)](const Call& c) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (c.add[i] || bytes[i] == 0) continue;
      GACCD_RETURN_IF_ERROR(
          CudaStatus(cudaMemsetAsync(c.outputs[i], 0, bytes[i], stream), "sums over no samples"));
    }
    return Status::Ok();
  });
}

// Adds a bias to rows, 16 bytes per thread if the rows consist of whole vectors.

namespace {

// Index: unsigned type for indices of vectors.
template <typename T, bool kRelu, int kWidth, typename Index>
__global__ void __launch_bounds__(kThreads)
    AddBiasKernel(const T* bias, T* y, Index vectors, Index columns, std::int64_t stride) {
  for (Index i = GridIndex<Index>(); i < vectors; i += GridStride<Index>()) {
    const Index row = i / columns;
    const auto column = static_cast<std::int64_t>(i - row * columns) * kWidth;
    T* const at = y + static_cast<std::int64_t>(row) * stride + column;
    float sum[kWidth];
    float added[kWidth];
    Load<Use::kAgain>(at, sum);
    Load<Use::kAgain>(bias + column, added);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      sum[v] += added[v];
      if (kRelu) sum[v] = ReluFormula::Apply(sum[v]);
    }
    Store<Use::kAgain>(at, sum);
  }
}

template <typename T, bool kRelu>
Status AddBiasTo(const KernelStream& on, const void* bias, void* y, Matrix size) {
  constexpr int kVector = kVectorWidth<T>;
  // Twice as many fit: the step of the grid is added before the comparison.
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t elements = size.rows * size.columns;
  const auto launch = [&](auto width, auto index) {
    using Index = decltype(index);
    constexpr int kWidth = decltype(width)::value;
    return Launch(AddBiasKernel<T, kRelu, kWidth, Index>,
                  {on.Blocks(elements, kThreads * kWidth), kThreads}, on.stream, "add_bias",
                  static_cast<const T*>(bias), static_cast<T*>(y),
                  static_cast<Index>(elements / kWidth), static_cast<Index>(size.columns / kWidth),
                  size.row_stride());
  };
  const bool vectors = size.columns % kVector == 0 && size.row_stride() % kVector == 0 &&
                       IsVectorAligned(bias) && IsVectorAligned(y) && elements / kVector < kMost;
  if (vectors) return launch(std::integral_constant<int, kVector>(), std::uint32_t{});
  return launch(std::integral_constant<int, 1>(), std::uint64_t{});
}

}  // namespace

Status EnqueueAddBias(const KernelStream& on, DType dtype, const void* bias, void* y, Matrix size,
                      bool relu) {
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return relu ? AddBiasTo<T, true>(on, bias, y, size) : AddBiasTo<T, false>(on, bias, y, size);
  });
}

}  // namespace gaccd
