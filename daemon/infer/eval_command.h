// The verb `gaccd eval`: loss and metrics of trained weights.
#pragma once

#include "daemon/train/run.h"

namespace gaccd {

// Rank 0 prints on stdout what the evaluation of a training would have found with these weights: on
// as many ranks, with the same micro-batch, the same bits. On others counts are the same, and sums
// of floats up to their rounding.
RanksOutcome RunEval(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
