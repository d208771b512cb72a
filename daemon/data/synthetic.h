// A regression set that needs no file: y = W x + noise * e, with x and e standard normal.
//
// Sample i is a function of (seed, i) alone, made when it is asked for. W is standard normal too,
// but a function of (features, outputs) alone: two sets with different seeds hold different samples
// of the same line, so one can be trained on and the other held out. The normalisation applies to x
// after y was computed.
#pragma once

#include <memory>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// Errors: kConfig for a count below 1, a noise that is negative or not finite, a W of more than
// 2^26 elements.
Result<std::unique_ptr<Dataset>> MakeSynthetic(const SyntheticSpec& source,
                                               const NormalizeSpec& normalize);

}  // namespace gaccd
