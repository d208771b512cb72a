// Running statistics of batch norms on a GPU (formulas: batch_norm.h), and the sums over an update
// from which they are computed. Pointers are to GPU memory; same conventions as in kernels_cuda.h.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// One batch norm.
struct RunningLayer {
  std::int64_t channels = 0;
  double momentum = 0;
  // f64 [runs, 2 channels + 1], over all ranks; the whole update is one run. Null: micro-batches,
  // whose sums were reduced like gradients of the three buffers (MicroStatistics).
  const double* sums = nullptr;
  std::int64_t runs = 1;
  // Addresses of running_mean, running_var and num_batches_tracked in the flat gradients.
  float* mean_gradient = nullptr;
  float* variance_gradient = nullptr;
  float* updates_gradient = nullptr;
  // f64 [2 channels + 1]: S1, the sum of n var n / (n - 1), n. Written by EnqueueCollectRunning(),
  // read by EnqueueAddToRunning().
  double* found = nullptr;
  float* mean = nullptr;
  float* variance = nullptr;
  float* updates = nullptr;
};

// For every layer, after the reduction: fills `found` and zeroes the three gradients. If a running
// statistic would not be finite, the gradient of the mean becomes NaN, so that the update is not
// finite. layers: GPU memory.
Status EnqueueCollectRunning(cudaStream_t stream, const RunningLayer* layers, std::size_t count);
// Adds `found` to the running statistics, unless *idle.
Status EnqueueAddToRunning(cudaStream_t stream, const RunningLayer* layers, std::size_t count,
                           const std::int32_t* idle);

// to[i] += from[i].
Status EnqueueAddSums(cudaStream_t stream, const double* from, std::int64_t elements, double* to);
// *to = value.
Status EnqueueSet(cudaStream_t stream, std::int64_t value, std::int64_t* to);

}  // namespace gaccd
