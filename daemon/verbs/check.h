// The verb `gaccd check`: the environment of every rank, and whether the ranks are compatible.
#pragma once

#include "daemon/config/flags.h"
#include "daemon/launch/verb_outcome.h"

namespace gaccd {

// Connects the ranks as for a training, gathers their reports, and lets rank 0 print them on
// stdout. kConfig on all ranks, with the offending ranks, if they are incompatible: rank 0 prints
// that. An earlier error is returned unprinted on every rank that has it.
VerbOutcome RunCheck(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
