// TimeWork: measures the time of work on a stream.
#pragma once

#include <functional>
#include <limits>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"

namespace gaccd {

// Microseconds of the work that `enqueue` enqueues on the stream, run as a graph, as in the engine.
// A time far above `best` is only rough. Waits for the GPU. REQUIRES: the work has run once, so
// that everything is loaded.
Result<double> TimeWork(cudaStream_t stream, const std::function<Status()>& enqueue,
                        double best = std::numeric_limits<double>::infinity());

}  // namespace gaccd
