// The verb `gaccd check`: what every rank runs on, and whether the ranks can work together.
#pragma once

#include "daemon/train/run.h"

namespace gaccd {

// Joins the ranks like a training, gathers their reports, and lets rank 0 print them on stdout.
// kConfig on all ranks alike, naming the culprits, when they cannot work together; errors are
// printed by rank 0 alone.
RanksOutcome RunCheck(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
