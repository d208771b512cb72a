// The verb `gaccd eval`: loss and metrics of trained weights.
#pragma once

#include "daemon/config/flags.h"
#include "daemon/launch/verb_outcome.h"

namespace gaccd {

// Rank 0 prints on stdout what an evaluation in a training would have computed with these weights:
// bit-identical on the same number of ranks with the same micro-batch; otherwise counts are equal,
// and sums of floats differ by rounding.
VerbOutcome RunEval(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
