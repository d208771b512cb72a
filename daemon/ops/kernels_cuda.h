// The kernels of this folder as functions that put them into a stream: what *_cuda.cu offers
// cuda_kernels.cc. Pointers are GPU memory, row-major, aligned to their type; 16-byte alignment of
// pointers and rows makes them faster. Nothing waits and nothing is allocated, so a graph can be
// captured from them. `dtype` is kF32, kBF16 or kFP16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/reduce.h"
#include "daemon/ops/elementwise.h"

namespace gaccd {

struct KernelStream {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  GridSums sums;
};

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// elementwise_cuda.cu. Outputs may be an input.
Status EnqueueAdd(const KernelStream& on, DType dtype, const void* a, const void* b, void* c,
                  std::int64_t elements);
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
// y[row, column] += bias[column], then ReLU. For products without such an epilogue.
Status EnqueueAddBias(const KernelStream& on, DType dtype, const void* bias, void* y, Matrix size,
                      bool relu);
Status EnqueueReluGradient(const KernelStream& on, DType dtype, const void* dy, const void* y,
                           void* dx, std::int64_t elements);
Status EnqueueCast(const KernelStream& on, DType from, const void* in, DType to, void* out,
                   std::int64_t elements);
// gradient = or += a.
Status EnqueueAccumulate(const KernelStream& on, DType dtype, const void* a, float* gradient,
                         std::int64_t elements, bool add);

// bias_gradient_cuda.cu. db = or += the sums of the columns of dy. scratch:
// BiasGradientScratchBytes() bytes, of any content.
[[nodiscard]] std::size_t BiasGradientScratchBytes(Matrix size);
Status EnqueueBiasGradient(const KernelStream& on, DType dtype, const void* dy, Matrix size,
                           float* db, bool add, void* scratch);

// softmax_cuda.cu. `out` may be the logits or the probabilities. A label outside [0, columns) makes
// loss_sum NaN. probabilities null: only the loss.
Status EnqueueSoftmaxCrossEntropy(const KernelStream& on, DType dtype, const void* logits,
                                  const std::int32_t* labels, Matrix size, double* loss_sum,
                                  void* probabilities);
// Loss and gradient in one pass: out = (softmax(logits) - onehot(labels)) * dloss.
Status EnqueueSoftmaxCrossEntropyFused(const KernelStream& on, DType dtype, const void* logits,
                                       const std::int32_t* labels, const float* dloss, Matrix size,
                                       double* loss_sum, void* out);

// loss_cuda.cu.
Status EnqueueSoftmaxCrossEntropyGradient(const KernelStream& on, DType dtype,
                                          const void* probabilities, const std::int32_t* labels,
                                          const float* dloss, Matrix size, void* out);
// label_ranks.h.
Status EnqueueLabelRanks(const KernelStream& on, DType dtype, const void* logits,
                         const std::int32_t* labels, Matrix size, std::int32_t* ranks,
                         std::int32_t* best);
// dy null: only the loss. loss_sum null: only the gradient. `dy` may be y. `dtype` is that of y and
// dy; t is f32.
Status EnqueueMeanSquaredError(const KernelStream& on, DType dtype, const void* y, const float* t,
                               const float* dloss, Matrix size, double* loss_sum, void* dy);

}  // namespace gaccd
