// Kernels of tests/gpu/contact_test.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collectives/base/result.h"

namespace gaccd {

// Keeps one multiprocessor busy for about so long.
Status EnqueueSpin(cudaStream_t stream, std::int64_t nanoseconds);
// *value += addend, by one thread.
Status EnqueueAdd(cudaStream_t stream, std::int32_t* value, std::int32_t addend);
// *value = 7. Launched for the first time inside a capture.
Status EnqueueFirstInCapture(cudaStream_t stream, std::int32_t* value);

}  // namespace gaccd
