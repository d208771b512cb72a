// TimeWork: how long work on a stream takes.
#pragma once

#include <functional>
#include <limits>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"

namespace gaccd {

// Microseconds of what `enqueue` puts into the stream, as a graph, which is how the engine replays
// it. Far from `best` it is only a rough figure. Waits for the GPU. REQUIRES: it ran once before,
// so that what it loads is there.
Result<double> TimeWork(cudaStream_t stream, const std::function<Status()>& enqueue,
                        double best = std::numeric_limits<double>::infinity());

}  // namespace gaccd
