// Kernels as functions that put them into a stream, where more than their maker calls them: other
// makers, tests, benchmarks. Pointers are GPU memory, row-major, aligned to their type; 16-byte
// alignment of pointers and rows makes them faster. Nothing waits and nothing is allocated, so a
// graph can be captured from them. `dtype` is kF32, kBF16 or kFP16: the type of x, y, logits and
// their gradients; everything else is f32.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

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

  // Blocks of 256 threads for `items` of which a block takes `per_block` at once: no more than run
  // at the same time, the loops of the kernel do the rest.
  [[nodiscard]] unsigned Blocks(std::int64_t items, std::int64_t per_block) const {
    return std::min(static_cast<unsigned>(multiprocessors) * 8, BlocksFor(items, per_block));
  }
};

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;  // elements from row to row, see ValueSpec; 0: columns

  [[nodiscard]] std::int64_t row_stride() const { return stride > 0 ? stride : columns; }
};

// elementwise_cuda.cu. Outputs may be an input.
Status EnqueueRelu(const KernelStream& on, DType dtype, const void* x, void* y,
                   std::int64_t elements);
// Formulas: activations.h. `kept` is the inputs of the gradient in addition to dy.
Status EnqueueActivation(const KernelStream& on, ActivationKind kind, DType dtype, const void* x,
                         void* y, std::int64_t elements);
Status EnqueueActivationGradient(const KernelStream& on, ActivationKind kind, DType dtype,
                                 const void* dy, const void* kept, void* dx, std::int64_t elements);
// out[i] = in[i] / count in f64, rounded once.
Status EnqueueDivide(const KernelStream& on, const float* in, std::int64_t elements,
                     std::int64_t count, float* out);
// y[row, column] += bias[column], then ReLU. For products without such an epilogue. Takes a stride.
Status EnqueueAddBias(const KernelStream& on, DType dtype, const void* bias, void* y, Matrix size,
                      bool relu);
Status EnqueueCast(const KernelStream& on, DType from, const void* in, DType to, void* out,
                   std::int64_t elements);
// gradient = or += a.
Status EnqueueAccumulate(const KernelStream& on, DType dtype, const void* a, float* gradient,
                         std::int64_t elements, bool add);

// bias_gradient_cuda.cu. db = or += the sums of the columns of dy, which may have a stride.
// scratch: BiasGradientScratchBytes() bytes, of any content.
[[nodiscard]] std::size_t BiasGradientScratchBytes(Matrix size);
Status EnqueueBiasGradient(const KernelStream& on, DType dtype, const void* dy, Matrix size,
                           float* db, bool add, void* scratch);

// token_cross_entropy_cuda.cu, in one pass over the logits. dlogits may be the logits; it and dloss
// are null together: only the loss. A stride is that of both. An ignored row gets zeros and counts
// nothing; one whose label is not in [0, columns) gets zeros and makes loss_sum NaN. weights may be
// null.
Status EnqueueTokenCrossEntropy(const KernelStream& on, DType dtype, const void* logits,
                                const std::int32_t* labels, const float* weights,
                                const TokenCrossEntropyOptions& options, const float* dloss,
                                Matrix size, double* loss_sum, double* weight_sum, void* dlogits);

// embedding_gradient_cuda.cu. dtable = or += the sums of the rows of dy by id; count < 2^31.
// scratch: EmbeddingGradientScratchBytes() bytes of any content. Order of a sum: the rows sorted by
// id are cut into parts of 32 rows. The rows of an id within a part are added in their order. If
// these are several parts, their sums are cut into 8 pieces of equal length, added in order, and so
// are the pieces. It depends on the ids alone.
[[nodiscard]] std::size_t EmbeddingGradientScratchBytes(std::int64_t count, std::int64_t columns);
Status EnqueueEmbeddingGradient(const KernelStream& on, DType dtype, const void* dy,
                                const std::int32_t* ids, std::int64_t count, Matrix size,
                                float* dtable, bool add, void* scratch);
// layer_norm_gradient_cuda.cu. dx, plus `residual` if that is not null. Of RMS norm where mean is
// null; dbeta then is null, too. Order of the sums for gamma
// and beta: the rows are cut into parts, of 16 rows or 768 parts in all, the parts into 32 pieces;
// within each, and then the pieces, they are added in their order. It depends on the rows alone.
struct LayerNormGradients {
  void* dx;  // may be dy or the residual
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
