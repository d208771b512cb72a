// One thread per written value, or per 16 bytes of them.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// kWidth consecutive values of an operand, or one that is repeated (step 0).
template <typename T, int kWidth>
struct OperandVector {
  Raw<T, kWidth> values;
  T repeated;

  __device__ void Read(const T* from, std::int64_t step) {
    if (kWidth == 1 || step != 0) {
      values = LoadRaw<kWidth, Use::kAgain>(from);
    } else {
      repeated = *from;
    }
  }
  __device__ void UnpackTo(float (&to)[kWidth], std::int64_t step) const {
    if (kWidth == 1 || step != 0) {
      Unpack(values, to);
    } else {
#pragma unroll
      for (int v = 0; v < kWidth; ++v) to[v] = ToFloat(repeated);
    }
  }
};

__device__ float CombinePair(CombineKind kind, float a, float b) {
  if (kind == CombineKind::kAdd) return a + b;
  if (kind == CombineKind::kDivide) return a / b;
  return kind == CombineKind::kMultiply ? a * b : b != 0 ? a : 0.0F;
}

// vectors: a nest over kWidth elements at a time; steps: of a and b within them.
template <typename A, typename B, typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const A* a, std::int64_t a_step, const B* b, std::int64_t b_step,
                  StridedNest vectors, CombineKind kind, T* y) {
  for (std::int64_t i = GridIndex(); i < vectors.elements; i += GridStride()) {
    std::int64_t at[StridedNest::kOperands] = {};
    vectors.Place(i, at);
    // Load both before using either.
    OperandVector<A, kWidth> left;
    OperandVector<B, kWidth> right;
    left.Read(a + at[0], a_step);
    right.Read(b + at[1], b_step);
    float of_a[kWidth], of_b[kWidth];
    left.UnpackTo(of_a, a_step);
    right.UnpackTo(of_b, b_step);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      of_a[v] = CombinePair(kind, of_a[v], of_b[v]);
    }
    Store<Use::kAgain>(y + i * kWidth, of_a);
  }
}

// Nest over kWidth elements of the innermost dimension at a time. REQUIRES: it is a multiple of
// kWidth.
StridedNest ToVectorNest(StridedNest nest, int width) {
  if (nest.rank == 0) return nest;  // one element
  StridedNest::Dimension& inner = nest.dimensions[nest.rank - 1];
  inner.size /= width;
  for (std::int64_t& step : inner.steps) step *= width;
  nest.elements /= width;
  return nest;
}

template <typename A, typename B, typename T>
Status LaunchCombine(const KernelStream& on, const Call& c, const StridedNest& nest,
                     CombineKind kind) {
  constexpr int kWidth = kVectorWidth<T>;
  const A* a = c.in<A>(0);
  const B* b = c.in<B>(1);
  const StridedNest::Dimension inner =
      nest.rank > 0 ? nest.dimensions[nest.rank - 1] : StridedNest::Dimension{};
  // If an operand has step 1, its other steps are multiples of the size.
  const bool aligned = inner.size % kWidth == 0 && inner.steps[0] <= 1 && inner.steps[1] <= 1 &&
                       IsVectorAligned(a) && IsVectorAligned(b) && IsVectorAligned(c.outputs[0]);
  const StridedNest vectors = ToVectorNest(nest, aligned ? kWidth : 1);
  return LaunchForEach(aligned ? CombineKernel<A, B, T, kWidth> : CombineKernel<A, B, T, 1>, on,
                       vectors.elements, "combine", a, inner.steps[0], b, inner.steps[1], vectors,
                       kind, c.out<T>(0));
}

}  // namespace

KernelResult MakeCombineCuda(const CudaRequest& request) {
  const DType a = request.inputs[0].dtype;
  const DType b = request.inputs[1].dtype;
  const StridedNest nest =
      CombineNest(request.inputs[0].shape, request.inputs[1].shape, request.outputs[0].shape);
  const CombineKind kind = static_cast<const Combine&>(request.function).kind();
  return MakeCall(request, [=, on = request.on, dtype = request.outputs[0].dtype](const Call& c) {
    return WithFloat(dtype, [&](auto t) {
      using T = decltype(t);
      if (a != dtype) return LaunchCombine<float, T, T>(on, c, nest, kind);
      if (b != dtype) return LaunchCombine<T, float, T>(on, c, nest, kind);
      return LaunchCombine<T, T, T>(on, c, nest, kind);
    });
  });
}

}  // namespace gaccd
