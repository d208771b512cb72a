// The verbs that one process runs by itself. `train` and `check` run on all ranks: daemon/train.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Runs the verb and prints what it has to say, but not its error. The exit code; 0 for most verbs.
// REQUIRES: flags.verb is neither kTrain nor kCheck.
Result<int> RunVerb(const Flags& flags);

}  // namespace gaccd
