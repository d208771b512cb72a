// `gaccd samples`: which samples each rank takes in the micro-steps of each update, as TrainIndices
// gives them to a training.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Prints update by update, so that a long run takes no memory. Errors: kUsage for a rank outside of
// the plan, an update beyond the run, or neither a data set size nor a job; those of
// MakePlanOutput, UpdateSchedule::Make and, for the size of the job's data set, OpenTrainingData.
[[nodiscard]] Status RunSamplesCommand(const Flags& flags);

}  // namespace gaccd
