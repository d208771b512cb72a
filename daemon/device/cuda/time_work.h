// TimeWork: measures the time of work on a stream.
#pragma once

#include <functional>
#include <limits>

#include "collectives/base/cuda.h"
#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// Microseconds of the work that `enqueue` enqueues on the stream, run as a graph, as in the engine.
// A time far above `best` is only rough. Waits for the GPU. REQUIRES: the work has run once, so
// that everything is loaded.
Result<double> TimeWork(cudaStream_t stream, const std::function<Status()>& enqueue,
                        double best = std::numeric_limits<double>::infinity());

// Data for timing matrix products and kernels on a GPU.

// Fills the buffer with the same uniform values in [-1, 1) at every call, f32, bf16 or fp16,
// repeated every MiB. Zeros are unsuitable for timing: a GPU draws less power with them and runs
// faster, so a ranking would differ from that of real data. Waits for the GPU.
Status FillRandom(const DeviceBuffer& buffer, DType dtype);

}  // namespace gaccd
