// More kernels as functions that put them into a stream, for the functions of text models; the
// rules are those of kernels_cuda.h, the formulas are in the headers of the functions (embedding.h
// and so on). x, y and their gradients are of type `dtype`, everything else f32.
#pragma once

#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// embedding_cuda.cu. Tables are f32 [rows, columns].
Status EnqueueEmbedding(const KernelStream& on, DType dtype, const std::int32_t* ids,
                        std::int64_t count, const float* table, Matrix size, void* y);
// dtable = or += the sums of the rows of dy by id. A warp searches the ids for every row, so the
// time grows with count^2 / 32 comparisons in addition to the reads of dy; the rows of one id are
// added by one warp for every 32 columns.
Status EnqueueEmbeddingGradient(const KernelStream& on, DType dtype, const void* dy,
                                const std::int32_t* ids, std::int64_t count, Matrix size,
                                float* dtable, bool add);
// `x`: `elements` values; `sequence`: elements of a sequence, the same in x and in the table.
Status EnqueueAddPositions(const KernelStream& on, DType dtype, const void* x, const float* table,
                           std::int64_t elements, std::int64_t sequence, void* y);
// `table`: elements of the table; those from `sequence` on get no gradient.
Status EnqueuePositionsGradient(const KernelStream& on, DType dtype, const void* dy,
                                std::int64_t elements, std::int64_t sequence, std::int64_t table,
                                float* dtable, bool add);

struct SequenceSize {
  std::int64_t count = 0, length = 0, columns = 0;  // sequences, rows of each
};

// pool_cuda.cu. lengths may be null.
Status EnqueueFirstRows(const KernelStream& on, DType dtype, const void* x, SequenceSize size,
                        void* y);
Status EnqueueFirstRowsGradient(const KernelStream& on, DType dtype, const void* dy,
                                SequenceSize size, void* dx);
Status EnqueueMeanRows(const KernelStream& on, DType dtype, const void* x,
                       const std::int32_t* lengths, SequenceSize size, void* y);
Status EnqueueMeanRowsGradient(const KernelStream& on, DType dtype, const void* dy,
                               const std::int32_t* lengths, SequenceSize size, void* dx);

// dropout_cuda.cu. `mask` is without its layer, which follows from the other numbers: see
// dropout.h. `elements`: of a sample. y may be x.
Status EnqueueDropout(const KernelStream& on, DType dtype, const void* x, const std::int64_t* ids,
                      const std::int64_t* update, std::int64_t samples, std::int64_t elements,
                      const DropoutMask& mask, std::uint64_t seed, std::uint64_t layer, void* y);

// row_kernels_cuda.cu.
Status EnqueueLayerNorm(const KernelStream& on, DType dtype, const void* x, const float* gamma,
                        const float* beta, Matrix size, float eps, void* y, float* mean,
                        float* rstd);
// sum = x + residual, and the layer norm of that. `sum` may be x.
Status EnqueueAddLayerNorm(const KernelStream& on, DType dtype, const void* x, const void* residual,
                           const float* gamma, const float* beta, Matrix size, float eps, void* sum,
                           void* y, float* mean, float* rstd);
struct LayerNormGradients {
  void* dx;  // may be dy
  float* dgamma;
  float* dbeta;
  bool add_gamma, add_beta;
};
[[nodiscard]] std::size_t LayerNormGradientScratchBytes(Matrix size);
Status EnqueueLayerNormGradient(const KernelStream& on, DType dtype, const void* dy, const void* x,
                                const float* gamma, const float* mean, const float* rstd,
                                Matrix size, const LayerNormGradients& to, void* scratch);
// Outputs may be the first input.
Status EnqueueSoftmax(const KernelStream& on, DType dtype, const void* x, Matrix size, void* y);
Status EnqueueSoftmaxGradient(const KernelStream& on, DType dtype, const void* dy, const void* y,
                              Matrix size, void* dx);
Status EnqueueL2Normalize(const KernelStream& on, DType dtype, const void* x, Matrix size,
                          float eps, void* y, float* norm);
Status EnqueueL2NormalizeGradient(const KernelStream& on, DType dtype, const void* dy,
                                  const void* y, const float* norm, Matrix size, float eps,
                                  void* dx);

// token_loss_cuda.cu. weights may be null. scratch: two doubles a row.
struct TokenLoss {
  std::int32_t ignored_label;
  float label_smoothing;
};
Status EnqueueTokenCrossEntropy(const KernelStream& on, DType dtype, const void* logits,
                                const std::int32_t* labels, const float* weights, Matrix size,
                                const TokenLoss& loss, double* loss_sum, double* weight_sum,
                                float* statistics, double* scratch);
// dlogits may be the logits.
Status EnqueueTokenCrossEntropyGradient(const KernelStream& on, DType dtype, const void* logits,
                                        const std::int32_t* labels, const float* statistics,
                                        const float* dloss, const float* weights, Matrix size,
                                        const TokenLoss& loss, void* dlogits);

}  // namespace gaccd
