// Functions that enqueue kernels, for kernels with several callers: makers, tests, benchmarks.
// Pointers are to GPU memory, row-major, aligned to their type; 16-byte alignment of pointers and
// rows is faster. They never wait or allocate, so they can be captured. `dtype` is kF32, kBF16 or
// kFP16: the type of x, y, logits and their gradients; everything else is f32.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/launch.h"
#include "daemon/device/cuda/reduce.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/elementwise.h"

namespace gaccd {

struct KernelStream {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  GridSums sums;

  // Blocks of 256 threads for `items`, of which a block processes `per_block` at once; at most as
  // many as run concurrently, so kernels loop over the rest.
  [[nodiscard]] unsigned Blocks(std::int64_t items, std::int64_t per_block) const {
    return std::min(static_cast<unsigned>(multiprocessors) * 8, BlocksFor(items, per_block));
  }
};

#if defined(__CUDACC__) || defined(GACCD_SIMT_EMULATION)
// Launches a kernel that loops over `items` with one thread per item (GridIndex(), GridStride()).
template <typename... Parameters, typename... Arguments>
Status LaunchForEach(void (*kernel)(Parameters...), const KernelStream& on, std::int64_t items,
                     const char* what, Arguments... arguments) {
  return Launch(kernel, {on.Blocks(items, kThreads), kThreads}, on.stream, what, arguments...);
}

// Calls at(width, i) for this thread's vectors of `width` = kWidth values, then, with a width of 1,
// for its values after the last vector.
template <int kWidth, typename At>
__device__ inline void ForVectors(std::int64_t elements, const At& at) {
  const std::int64_t threads = GridStride();
  const std::int64_t thread = GridIndex();
  const std::int64_t vectors = elements / kWidth;
  for (std::int64_t v = thread; v < vectors; v += threads) {
    at(std::integral_constant<int, kWidth>(), v * kWidth);
  }
  for (std::int64_t i = vectors * kWidth + thread; i < elements; i += threads) {
    at(std::integral_constant<int, 1>(), i);
  }
}
#endif

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // elements from row to row, see ValueSpec; 0: columns

  [[nodiscard]] std::int64_t row_stride() const { return stride > 0 ? stride : columns; }
};

// elementwise_cuda.cu. Outputs may alias an input.
Status EnqueueRelu(const KernelStream& on, DType dtype, const void* x, void* y,
                   std::int64_t elements);
// Formulas: activations.h. kept: the inputs of the gradient besides dy.
Status EnqueueActivation(const KernelStream& on, ActivationKind kind, DType dtype, const void* x,
                         void* y, std::int64_t elements);
Status EnqueueActivationGradient(const KernelStream& on, ActivationKind kind, DType dtype,
                                 const void* dy, const void* kept, void* dx, std::int64_t elements);
// out[i] = in[i] / count in f64, rounded once.
Status EnqueueDivide(const KernelStream& on, const float* in, std::int64_t elements,
                     std::int64_t count, float* out);
// y[row, column] += bias[column], then ReLU, for products without such an epilogue. Supports a
// stride.
Status EnqueueAddBias(const KernelStream& on, DType dtype, const void* bias, void* y, Matrix size,
                      bool relu);
Status EnqueueCast(const KernelStream& on, DType from, const void* in, DType to, void* out,
                   std::int64_t elements);
// gradient = or += a.
Status EnqueueAccumulate(const KernelStream& on, DType dtype, const void* a, float* gradient,
                         std::int64_t elements, bool add);

// bias_gradient_cuda.cu. db = or += the column sums of dy, which may have a stride. scratch:
// BiasGradientScratchBytes() bytes of any content.
[[nodiscard]] std::size_t BiasGradientScratchBytes(Matrix size);
Status EnqueueBiasGradient(const KernelStream& on, DType dtype, const void* dy, Matrix size,
                           float* db, bool add, void* scratch);

// token_cross_entropy_cuda.cu, in one pass over the logits. dlogits may alias the logits; dlogits
// and dloss are both null for the loss only. A stride applies to both. An ignored row gets zeros
// and is not counted; a row whose label is not in [0, columns) gets zeros and makes loss_sum NaN.
// weights may be null.
Status EnqueueTokenCrossEntropy(const KernelStream& on, DType dtype, const void* logits,
                                const std::int32_t* labels, const float* weights,
                                const TokenCrossEntropyOptions& options, const float* dloss,
                                Matrix size, double* loss_sum, double* weight_sum, void* dlogits);

// embedding_gradient_cuda.cu. dtable = or += the sums of the rows of dy by id; count < 2^31.
// scratch: EmbeddingGradientScratchBytes() bytes of any content. Order of a sum, which depends only
// on the ids: the rows sorted by id are divided into parts of 32 rows; the rows of an id within a
// part are added in order; if there are several parts, their sums are divided into 8 pieces of
// equal length, added in order, and then the pieces are added.
[[nodiscard]] std::size_t EmbeddingGradientScratchBytes(std::int64_t count, std::int64_t columns);
Status EnqueueEmbeddingGradient(const KernelStream& on, DType dtype, const void* dy,
                                const std::int32_t* ids, std::int64_t count, Matrix size,
                                float* dtable, bool add, void* scratch);
// layer_norm_gradient_cuda.cu. dx, plus `residual` if it is not null. RMS norm if mean is null;
// then dbeta is null, too. Order of the sums for gamma and beta, which depends only on the number
// of rows: the rows are divided into parts of 16 rows, or into 768 parts, and the parts into 32
// pieces; rows, parts and pieces are added in order.
struct LayerNormGradients {
  void* dx;  // may alias dy or the residual
  float* dgamma;
  float* dbeta;
  bool add_gamma, add_beta;
};
[[nodiscard]] std::size_t LayerNormGradientScratchBytes(Matrix size);
Status EnqueueLayerNormGradient(const KernelStream& on, DType dtype, const void* dy, const void* x,
                                const void* residual, const float* gamma, const float* mean,
                                const float* rstd, Matrix size, const LayerNormGradients& to,
                                void* scratch);

}  // namespace gaccd
