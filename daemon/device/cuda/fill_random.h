// Data for timing products and kernels on a GPU.
#pragma once

#include "collectives/base/cuda.h"
#include "collectives/base/dtype.h"

namespace gaccd {

// The same uniform values in [-1, 1) at every call, f32, bf16 or fp16, repeated every MiB. Never
// time on zeros: a GPU draws less power with them and runs faster, so that a ranking would not be
// that of real data. Waits for the GPU.
Status FillRandom(const DeviceBuffer& buffer, DType dtype);

}  // namespace gaccd
