// `gaccd samples`: the samples of each rank in the micro-steps of each update, as TrainIndices
// provides them in a training.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Prints update by update, so that a long run needs no memory. kUsage for a rank outside of the
// plan, an update beyond the run, or neither a data set size nor a job; errors of MakePlanOutput,
// UpdateSchedule::Make and, for the size of the job's data set, OpenTrainingData.
[[nodiscard]] Status RunSamplesCommand(const Flags& flags);

}  // namespace gaccd
