// The verb `gaccd predict`: the model's prediction for every sample.
#pragma once

#include "daemon/train/run.h"

namespace gaccd {

// Writes --out, which appears whole: a NumPy array of a row for each sample, f32 (classes: i32), or
// a line of JSON for each; in the order of the data, whatever the number of ranks, which all write,
// so its folder must be seen by all of them. kData, naming the sample, where an answer is not
// finite.
RanksOutcome RunPredict(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
