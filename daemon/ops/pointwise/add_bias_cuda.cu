// Adds a bias to rows, 16 bytes per thread if the rows consist of whole vectors.
#include <cstdint>
#include <type_traits>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
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
