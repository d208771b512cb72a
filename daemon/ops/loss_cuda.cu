// The losses' smaller kernels: mean squared error, the gradient of a softmax from its
// probabilities, and the ranks of labels.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/elementwise.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;

unsigned BlocksOn(const KernelStream& on, unsigned wanted) {
  return std::min({wanted, static_cast<unsigned>(on.multiprocessors) * 8, GridSums::kMaxBlocks});
}

// sum of (y - t)^2 of one vector; dy = slope (y - t) over it.
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
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t vectors = elements / kWidth;
  double sum = 0;
  for (std::int64_t v = thread; v < vectors; v += threads) {
    sum += SquaredErrorAt<kWidth>(y, t, dy, slope, v * kWidth);
  }
  for (std::int64_t i = vectors * kWidth + thread; i < elements; i += threads) {
    sum += SquaredErrorAt<1>(y, t, dy, slope, i);
  }
  if (loss_sum == nullptr) return;
  double total = 0;
  if (GridSum(BlockSum(sum), arrived, partials, &total) && threadIdx.x == 0) {
    *loss_sum = total / static_cast<double>(columns);
  }
}

template <typename T>
Status SquaredErrorOf(const KernelStream& on, const void* y, const float* t, const float* dloss,
                      Matrix size, double* loss_sum, void* dy) {
  constexpr int kWidth = std::max(kVectorWidth<T>, kVectorWidth<float>);
  const bool aligned = IsVectorAligned(y) && IsVectorAligned(t) && IsVectorAligned(dy);
  const std::int64_t elements = size.rows * size.columns;
  const unsigned blocks = BlocksOn(on, BlocksFor(elements, kThreads * (aligned ? kWidth : 1)));
  return Launch(aligned ? SquaredErrorKernel<T, kWidth> : SquaredErrorKernel<T, 1>,
                {blocks, kThreads}, on.stream, "mean_squared_error", static_cast<const T*>(y), t,
                dloss, elements, size.columns, static_cast<T*>(dy), loss_sum, on.sums.arrived,
                on.sums.partials);
}

// dz = (p - onehot(label)) weight; a warp a row. `out` may be p.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SoftmaxGradientKernel(const T* probabilities, const std::int32_t* labels, const float* dloss,
                          std::int64_t rows, std::int64_t columns, T* out) {
  const float weight = *dloss;
  for (std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       m < rows; m += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const std::int64_t label = labels[m];
    for (std::int64_t c = threadIdx.x % kWarp; c < columns; c += kWarp) {
      const std::int64_t i = m * columns + c;
      const float p = ToFloat(probabilities[i]);
      out[i] = FromFloat<T>((c == label ? p - 1.0F : p) * weight);
    }
  }
}

template <typename T>
Status SoftmaxGradientOf(const KernelStream& on, const void* probabilities,
                         const std::int32_t* labels, const float* dloss, Matrix size, void* out) {
  return Launch(SoftmaxGradientKernel<T>, {BlocksOn(on, BlocksFor(size.rows, kWarps)), kThreads},
                on.stream, "softmax_cross_entropy_gradient", static_cast<const T*>(probabilities),
                labels, dloss, size.rows, size.columns, static_cast<T*>(out));
}

// A warp a row; no lane reads outside of it, whatever the label.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    LabelRanksKernel(const T* logits, const std::int32_t* labels, std::int64_t rows, int columns,
                     std::int32_t* ranks, std::int32_t* best) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       m < rows; m += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const T* z = logits + m * columns;
    const int label = labels[m];
    const bool is_class = label >= 0 && label < columns;
    const float at_label = is_class ? ToFloat(z[label]) : 0.0F;
    int before = 0;
    int first = columns;  // none yet
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

template <typename T>
Status LabelRanksOf(const KernelStream& on, const void* logits, const std::int32_t* labels,
                    Matrix size, std::int32_t* ranks, std::int32_t* best) {
  return Launch(LabelRanksKernel<T>, {BlocksOn(on, BlocksFor(size.rows, kWarps)), kThreads},
                on.stream, "label_ranks", static_cast<const T*>(logits), labels, size.rows,
                static_cast<int>(size.columns), ranks, best);
}

}  // namespace

Status EnqueueMeanSquaredError(const KernelStream& on, DType dtype, const void* y, const float* t,
                               const float* dloss, Matrix size, double* loss_sum, void* dy) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &SquaredErrorOf<decltype(t)>; });
  return enqueue(on, y, t, dloss, size, loss_sum, dy);
}

Status EnqueueSoftmaxCrossEntropyGradient(const KernelStream& on, DType dtype,
                                          const void* probabilities, const std::int32_t* labels,
                                          const float* dloss, Matrix size, void* out) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &SoftmaxGradientOf<decltype(t)>; });
  return enqueue(on, probabilities, labels, dloss, size, out);
}

Status EnqueueLabelRanks(const KernelStream& on, DType dtype, const void* logits,
                         const std::int32_t* labels, Matrix size, std::int32_t* ranks,
                         std::int32_t* best) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &LabelRanksOf<decltype(t)>; });
  return enqueue(on, logits, labels, size, ranks, best);
}

}  // namespace gaccd
