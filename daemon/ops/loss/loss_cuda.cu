// Mean squared error, and the ranks of labels.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

LaunchShape ShapeFor(const KernelStream& on, std::int64_t items, std::int64_t per_block) {
  return {std::min(on.Blocks(items, per_block), GridSums::kMaxBlocks), kThreads};
}

// Returns the sum of (y - t)^2 over one vector and writes dy = slope (y - t).
template <int kWidth, typename T>
__device__ inline double SquaredErrorAt(const T* y, const float* t, T* dy, float slope,
                                        std::int64_t i) {
  float a[kWidth];
  float b[kWidth];
  Load<Use::kAgain>(y + i, a);
  Load<Use::kAgain>(t + i, b);
  double sum = 0;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    sum += SquaredError(a[v], b[v]);
    a[v] = SquaredErrorGradient(slope, a[v], b[v]);
  }
  if (dy != nullptr) Store<Use::kAgain>(dy + i, a);
  return sum;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    SquaredErrorKernel(const T* y, const float* t, const float* dloss, std::int64_t elements,
                       std::int64_t columns, T* dy, double* loss_sum, unsigned* arrived,
                       double* partials) {
  const float slope = dloss != nullptr ? SquaredErrorSlope(*dloss, columns) : 0.0F;
  double sum = 0;
  ForVectors<kWidth>(elements, [&](auto width, std::int64_t i) {
    sum += SquaredErrorAt<width>(y, t, dy, slope, i);
  });
  if (loss_sum == nullptr) return;
  double total = 0;
  if (GridSum(BlockSum(sum), arrived, partials, &total) && threadIdx.x == 0) {
    *loss_sum = total / static_cast<double>(columns);
  }
}

// One warp per row; no lane reads outside the row, whatever the label.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    LabelRanksKernel(const T* logits, const std::int32_t* labels, std::int64_t rows, int columns,
                     std::int64_t stride, std::int32_t* ranks, std::int32_t* best) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       m < rows; m += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const T* z = logits + m * stride;
    const int label = labels[m];
    const bool is_class = label >= 0 && label < columns;
    const float at_label = is_class ? ToFloat(z[label]) : 0.0F;
    int before = 0;
    int first = columns;  // none so far
    float largest = 0;
    bool has_nan = false;
    for (int c = lane; c < columns; c += static_cast<int>(kWarp)) {
      const float other = ToFloat(z[c]);
      has_nan = has_nan || other != other;
      before += other > at_label || (other == at_label && c < label) ? 1 : 0;
      if (first == columns || other > largest) {
        first = c;
        largest = other;
      }
    }
    before = WarpSum(before);
    for (int bits = 16; bits > 0; bits /= 2) {
      const int c = __shfl_xor_sync(kAllLanes, first, bits);
      const float other = __shfl_xor_sync(kAllLanes, largest, bits);
      if (c < columns && (first == columns || other > largest || (other == largest && c < first))) {
        first = c;
        largest = other;
      }
    }
    const bool any_nan = __any_sync(kAllLanes, has_nan ? 1 : 0) != 0;
    if (lane == 0) {
      ranks[m] = any_nan || !is_class ? columns : before;
      best[m] = any_nan ? -1 : first;
    }
  }
}

}  // namespace

// The loss, its gradient or both: dy is the first output, loss_sum the last one.
KernelResult MakeMeanSquaredErrorCuda(const CudaRequest& request) {
  const bool has_gradient = request.inputs.size() > 2;
  const bool has_loss = request.outputs.back().dtype == DType::kF64;
  return MakeTypedCall(
      request, [=, on = request.on, size = request.size()](auto type, const Call& c) {
        using T = decltype(type);
        constexpr int kWidth = std::max(kVectorWidth<T>, kVectorWidth<float>);
        const T* y = c.in<T>(0);
        const auto* t = c.in<float>(1);
        T* dy = has_gradient ? c.out<T>(0) : nullptr;
        const bool aligned = IsVectorAligned(y) && IsVectorAligned(t) && IsVectorAligned(dy);
        const std::int64_t elements = size.rows * size.columns;
        return Launch(aligned ? SquaredErrorKernel<T, kWidth> : SquaredErrorKernel<T, 1>,
                      ShapeFor(on, elements, kThreads * (aligned ? kWidth : 1)), on.stream,
                      "mean_squared_error", y, t, c.optional_in<float>(2), elements, size.columns,
                      dy, has_loss ? c.out<double>(c.outputs.size() - 1) : nullptr, on.sums.arrived,
                      on.sums.partials);
      });
}

KernelResult MakeLabelRanksCuda(const CudaRequest& request) {
  return MakeTypedCall(request, [on = request.on, size = request.size()](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(LabelRanksKernel<T>, ShapeFor(on, size.rows, kWarps), on.stream, "label_ranks",
                  c.in<T>(0), c.in<std::int32_t>(1), size.rows, static_cast<int>(size.columns),
                  size.row_stride(), c.out<std::int32_t>(0), c.out<std::int32_t>(1));
  });
}

}  // namespace gaccd
