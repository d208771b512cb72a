// The kernels of this folder as functions that put them into a stream: what optimizer_cuda.cu
// offers optimizer_cuda.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/optim/update_control.h"

namespace gaccd {

// What one block of threads updates: `count` elements from `first` on, whose state begins at
// `state`, with the factors of `group`.
struct StepTile {
  std::int64_t first = 0;
  std::int64_t state = 0;
  std::int32_t count = 0;
  std::int32_t group = 0;
};
inline constexpr std::int64_t kStepTileElements = 1024;

// On the GPU. Null: all elements from 0 on belong to group 0.
struct StepTiles {
  const StepTile* data = nullptr;
  std::int64_t count = 0;
};

// trainable: the elements of the first values of the state, which the second ones follow.
Status EnqueueStep(cudaStream_t stream, const OptimizerSpec& spec,
                   const CudaOptimizer::Buffers& buffers, const StepTiles& tiles,
                   std::int64_t trainable, UpdateControl* control);

// The averages are laid out like the first values of the state. Does nothing when the verdict is
// idle.
Status EnqueueAverage(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                      const StepTiles& tiles, const UpdateControl* control);
// Parameters, and their copy in 16 bits, and averages change places.
Status EnqueueExchange(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                       const StepTiles& tiles);

}  // namespace gaccd
