// Data for timing matrix products and kernels on a GPU.
#pragma once

#include "collectives/base/cuda.h"
#include "collectives/base/dtype.h"

namespace gaccd {

// Fills the buffer with the same uniform values in [-1, 1) at every call, f32, bf16 or fp16,
// repeated every MiB. Zeros are unsuitable for timing: a GPU draws less power with them and runs
// faster, so a ranking would differ from that of real data. Waits for the GPU.
Status FillRandom(const DeviceBuffer& buffer, DType dtype);

}  // namespace gaccd
