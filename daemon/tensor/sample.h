// What a sample looks like, and a batch of samples in memory: the border between data and model.
#pragma once

#include <cstdint>

#include "daemon/tensor/shape.h"

namespace gaccd {

struct SampleSpec {
  Shape feature_shape;            // of one sample, without the batch dimension
  std::int64_t classes = 0;       // > 0: the target is a label in [0, classes)
  std::int64_t target_width = 0;  // classes == 0: the target is a vector of so many floats

  [[nodiscard]] std::int64_t feature_elements() const { return Elements(feature_shape); }
};

// Samples side by side in caller-owned memory. Exactly one of labels and targets is used.
struct BatchView {
  std::int64_t samples = 0;
  float* features = nullptr;       // [samples, feature_shape...]
  std::int32_t* labels = nullptr;  // [samples]
  float* targets = nullptr;        // [samples, target_width]
};

}  // namespace gaccd
