// A data set without weights of its labels as one with weights, where each is 1: evaluation data of
// a training whose data has weights.
#pragma once

#include <memory>

#include "daemon/data/dataset.h"

namespace gaccd {

// `weights`: the tensor, which becomes the last one. REQUIRES: `plain` has fewer than kMaxTensors
// tensors, and none of this name.
[[nodiscard]] std::unique_ptr<Dataset> WithEqualWeights(std::unique_ptr<Dataset> plain,
                                                        const TensorSpec& weights);

}  // namespace gaccd
