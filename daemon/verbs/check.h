// The verb `gaccd check`: what every rank runs on, and whether the ranks can work together.
#pragma once

#include "daemon/train/run.h"

namespace gaccd {

// Joins the ranks like a training, gathers their reports, and lets rank 0 print them on stdout.
// kConfig on all ranks alike, naming the offenders, when they cannot work together: rank 0
// prints that. An error before it comes back unprinted on every rank that has it.
RanksOutcome RunCheck(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
