// The kernels of this folder as functions that put them into a stream: what optimizer_cuda.cu
// offers optimizer_cuda.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/optim/update_control.h"

namespace gaccd {

enum class SgdRule { kPlain, kMomentum, kNesterov };

Status EnqueueSgd(cudaStream_t stream, SgdRule rule, const CudaOptimizer::Buffers& buffers,
                  UpdateControl* control);
Status EnqueueAdamW(cudaStream_t stream, const CudaOptimizer::Buffers& buffers,
                    UpdateControl* control);

}  // namespace gaccd
