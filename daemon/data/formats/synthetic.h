// A regression data set without files: y = W x + noise * e, with x and e standard normal.
//
// Sample i is a function of (seed, i), computed on demand. W is standard normal and a function of
// (features, outputs): sets with different seeds have different samples of the same function, for
// training and evaluation. The normalisation is applied to x after y was computed.
#pragma once

#include <memory>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"

namespace gaccd {

// kConfig for a count below 1, a noise outside [0, 1e30], or a W of more than 2^26 elements.
Result<std::unique_ptr<Dataset>> MakeSynthetic(const SyntheticSpec& source,
                                               const NormalizeSpec& normalize);

}  // namespace gaccd
