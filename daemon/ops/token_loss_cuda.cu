// Cross-entropy of tokens: a block takes a row, since vocabularies are large. The losses of the
// rows are added by one block, in the order of the rows.
#include <float.h>

#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/elementwise.h"
#include "daemon/ops/sequence_kernels_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kBlocksPerMultiprocessor = 8;

// All threads get the result. `warps`: not used by anybody else between two barriers.
__device__ inline float BlockMax(float value, float (&warps)[kWarps]) {
  value = WarpMax(value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (const float other : warps) value = fmaxf(value, other);
  return value;
}
__device__ inline float BlockTotal(float value, float (&warps)[kWarps]) {
  value = WarpSum(value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0;
  for (const float other : warps) sum += other;
  return sum;
}

__device__ inline bool IsClass(std::int64_t label, std::int64_t classes) {
  return label >= 0 && label < classes;
}

// of_rows: the weighted losses, then the weights.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    TokenLossKernel(const T* logits, const std::int32_t* labels, const float* weights,
                    std::int64_t rows, std::int64_t classes, TokenLoss loss, float* statistics,
                    double* of_rows) {
  __shared__ float tops[kWarps];
  __shared__ float sums[kWarps];
  __shared__ float distances[kWarps];
  for (std::int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const T* z = logits + n * classes;
    const std::int64_t label = labels[n];
    const bool counts = label != loss.ignored_label;
    const bool is_class = counts && IsClass(label, classes);
    float top = -INFINITY;
    for (std::int64_t c = threadIdx.x; is_class && c < classes; c += kThreads) {
      top = fmaxf(top, ToFloat(z[c]));
    }
    top = BlockMax(top, tops);
    float rest = 0;
    float distance = 0;
    for (std::int64_t c = threadIdx.x; is_class && c < classes; c += kThreads) {
      const float value = ToFloat(z[c]);
      if (c != label) rest += expf(value - top);
      if (loss.label_smoothing > 0) distance += top - value;
    }
    rest = BlockTotal(rest, sums);
    distance = BlockTotal(distance, distances);
    __syncthreads();  // the next row uses the same memory
    if (threadIdx.x != 0) continue;
    const float weight = counts ? (weights != nullptr ? weights[n] : 1.0F) : 0.0F;
    double of_row = counts ? NAN : 0.0;
    SoftmaxRow row;
    if (is_class) {
      const float at_label = ToFloat(z[label]);
      row = {top, rest, expf(at_label - top)};
      of_row = CrossEntropy(row, at_label);
      if (loss.label_smoothing > 0) {
        const double smoothing = static_cast<double>(loss.label_smoothing);
        const double of_all = log(static_cast<double>(row.rest) + static_cast<double>(row.label)) +
                              static_cast<double>(distance) / static_cast<double>(classes);
        of_row = (1 - smoothing) * of_row + smoothing * of_all;
      }
      of_row *= static_cast<double>(weight);
    }
    statistics[2 * n] = row.top;
    statistics[2 * n + 1] = row.total();
    of_rows[n] = of_row;
    of_rows[rows + n] = static_cast<double>(weight);
  }
}

__global__ void __launch_bounds__(kThreads)
    AddRowsKernel(const double* of_rows, std::int64_t rows, double* loss_sum, double* weight_sum) {
  double loss = 0;
  double weight = 0;
  for (std::int64_t n = threadIdx.x; n < rows; n += kThreads) {
    loss += of_rows[n];
    weight += of_rows[rows + n];
  }
  loss = BlockSum(loss);
  __syncthreads();
  weight = BlockSum(weight);
  if (threadIdx.x != 0) return;
  *loss_sum = loss;
  *weight_sum = weight;
}

template <typename T>
Status TokenLossOf(const KernelStream& on, const void* logits, const std::int32_t* labels,
                   const float* weights, Matrix size, const TokenLoss& loss, float* statistics,
                   double* of_rows) {
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  return Launch(TokenLossKernel<T>, {std::min(most, BlocksFor(size.rows, 1)), kThreads}, on.stream,
                "token_cross_entropy", static_cast<const T*>(logits), labels, weights, size.rows,
                size.columns, loss, statistics, of_rows);
}

// A thread takes values at a distance of kThreads of a row; dz may be z.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    TokenGradientKernel(const T* logits, const std::int32_t* labels, const float* statistics,
                        const float* dloss, const float* weights, std::int64_t rows,
                        std::int64_t classes, TokenLoss loss, T* dlogits) {
  for (std::int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const T* z = logits + n * classes;
    T* dz = dlogits + n * classes;
    const std::int64_t label = labels[n];
    const bool counts = label != loss.ignored_label && IsClass(label, classes);
    const float weight = counts ? (weights != nullptr ? *dloss * weights[n] : *dloss) : 0.0F;
    const float top = statistics[2 * n];
    const float scale = weight / statistics[2 * n + 1];
    const float everywhere = weight * loss.label_smoothing / static_cast<float>(classes);
    const float at_label = weight * (1.0F - loss.label_smoothing);
    for (std::int64_t c = threadIdx.x; c < classes; c += kThreads) {
      const float p = expf(ToFloat(z[c]) - top) * scale - everywhere;
      dz[c] = FromFloat<T>(!counts ? 0.0F : c == label ? p - at_label : p);
    }
  }
}

template <typename T>
Status TokenGradientOf(const KernelStream& on, const void* logits, const std::int32_t* labels,
                       const float* statistics, const float* dloss, const float* weights,
                       Matrix size, const TokenLoss& loss, void* dlogits) {
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  return Launch(TokenGradientKernel<T>, {std::min(most, BlocksFor(size.rows, 1)), kThreads},
                on.stream, "token_cross_entropy_gradient", static_cast<const T*>(logits), labels,
                statistics, dloss, weights, size.rows, size.columns, loss,
                static_cast<T*>(dlogits));
}

}  // namespace

Status EnqueueTokenCrossEntropy(const KernelStream& on, DType dtype, const void* logits,
                                const std::int32_t* labels, const float* weights, Matrix size,
                                const TokenLoss& loss, double* loss_sum, double* weight_sum,
                                float* statistics, double* scratch) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &TokenLossOf<decltype(t)>; });
  GACCD_RETURN_IF_ERROR(enqueue(on, logits, labels, weights, size, loss, statistics, scratch));
  return Launch(AddRowsKernel, {1, kThreads}, on.stream, "token_cross_entropy", scratch, size.rows,
                loss_sum, weight_sum);
}

Status EnqueueTokenCrossEntropyGradient(const KernelStream& on, DType dtype, const void* logits,
                                        const std::int32_t* labels, const float* statistics,
                                        const float* dloss, const float* weights, Matrix size,
                                        const TokenLoss& loss, void* dlogits) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &TokenGradientOf<decltype(t)>; });
  return enqueue(on, logits, labels, statistics, dloss, weights, size, loss, dlogits);
}

}  // namespace gaccd
