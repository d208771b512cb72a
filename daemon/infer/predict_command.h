// The verb `gaccd predict`: the model's prediction for every sample.
#pragma once

#include "daemon/config/flags.h"
#include "daemon/launch/verb_outcome.h"

namespace gaccd {

// Writes --out atomically: a NumPy array with a row per sample, f32 (classes: i32), or a line of
// JSON per sample; in the order of the data, whatever the number of ranks. All ranks write, so the
// folder must be visible to all of them. kData, with the sample, if a prediction is not finite.
VerbOutcome RunPredict(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
