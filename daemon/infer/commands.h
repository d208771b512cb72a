// The verbs of trained weights, on all ranks: `gaccd eval` and `gaccd predict`.
#pragma once

#include "daemon/config/flags.h"
#include "daemon/config/verb.h"

namespace gaccd {

// Rank 0 prints on stdout what an evaluation in a training would have computed with these weights:
// bit-identical on the same number of ranks with the same micro-batch; otherwise counts are equal,
// and sums of floats differ by rounding.
VerbOutcome RunEval(const Flags& flags, const ErrorPrinter& print);

// Writes --out atomically: a NumPy array with a row per sample, f32 (classes: i32), or a line of
// JSON per sample; in the order of the data, whatever the number of ranks. All ranks write, so the
// folder must be visible to all of them. kData, with the sample, if a prediction is not finite.
VerbOutcome RunPredict(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
