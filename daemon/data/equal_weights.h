// Adds label weights of 1 to a data set: for evaluation data when only the training data has
// weights.
#pragma once

#include <memory>

#include "daemon/data/dataset.h"

namespace gaccd {

// Adds the tensor "weights" of `weighted` to those of `plain`, at the same place. REQUIRES: `plain`
// has fewer than kMaxTensors tensors, and none of this name.
[[nodiscard]] std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                                        const SampleSpec& weighted);

}  // namespace gaccd
