// Functions that enqueue the kernels of this folder: interface from optimizer_cuda.cu to
// optimizer_cuda.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/optim/update_control.h"

namespace gaccd {

// The work of one thread block: `count` elements from `first` on, whose state begins at `state`,
// with the factors of `group`.
struct StepTile {
  std::int64_t first = 0;
  std::int64_t state = 0;
  std::int32_t count = 0;
  std::int32_t group = 0;
};
inline constexpr std::int64_t kStepTileElements = 1024;

// In GPU memory. Null: all elements from 0 on belong to group 0.
struct StepTiles {
  const StepTile* data = nullptr;
  std::int64_t count = 0;
};

// trainable: number of elements per state buffer; the second buffer follows the first.
Status EnqueueStep(cudaStream_t stream, const OptimizerSpec& spec,
                   const CudaOptimizer::Buffers& buffers, const StepTiles& tiles,
                   std::int64_t trainable, UpdateControl* control);

// `averages` has the layout of a state buffer. Does nothing if the decision is idle.
Status EnqueueAverage(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                      const StepTiles& tiles, const UpdateControl* control);
// Swaps parameters and averages, and updates the 16-bit copy of the parameters.
Status EnqueueExchange(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                       const StepTiles& tiles);

}  // namespace gaccd
