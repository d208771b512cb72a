// Adds label weights of 1 to a data set: for evaluation data when only the training data has
// weights.
#pragma once

#include <memory>

#include "daemon/data/dataset.h"

namespace gaccd {

// `weights`: appended to the tensors of `plain`. REQUIRES: `plain` has fewer than kMaxTensors
// tensors, and none of this name.
[[nodiscard]] std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                                        const TensorSpec& weights);

}  // namespace gaccd
