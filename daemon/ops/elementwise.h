// The formulas of the functions, value by value: written once, for the loops of the CPU and the
// kernels of the GPU.
#pragma once

#include <math.h>

#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

struct AddFormula {
  GACCD_HOST_DEVICE static float Of(float a, float b) { return a + b; }
};
struct ReluFormula {
  GACCD_HOST_DEVICE static float Of(float x) { return x <= 0 ? 0.0F : x; }  // a NaN stays
};
struct ReluGradientFormula {
  GACCD_HOST_DEVICE static float Of(float dy, float y) { return y <= 0 ? 0.0F : dy; }
};
struct IdentityFormula {  // a cast
  GACCD_HOST_DEVICE static float Of(float x) { return x; }
};

// (y - t)^2, in double: the loss of a good prediction is small beside y and t.
GACCD_HOST_DEVICE inline double SquaredError(float y, float t) {
  const double difference = static_cast<double>(y) - static_cast<double>(t);
  return difference * difference;
}
// d (weight / columns * sum over columns of (y - t)^2) / d y = slope * (y - t)
GACCD_HOST_DEVICE inline float SquaredErrorSlope(float weight, std::int64_t columns) {
  return weight * 2.0F / static_cast<float>(columns);
}
GACCD_HOST_DEVICE inline float SquaredErrorGradient(float slope, float y, float t) {
  return slope * (y - t);
}

// Rows of a softmax as the GPU computes them. `rest` is the sum of exp(z - top) over all classes
// but the label's, `label` = exp(z_label - top), top the largest logit. Keeping them apart, the
// loss of a confident row (a tiny rest) has all its digits:
//   loss = -log(label / (rest + label)) = log(1 + rest / label)
struct SoftmaxRow {
  float top = 0;
  float rest = 0;
  float label = 0;

  [[nodiscard]] GACCD_HOST_DEVICE float total() const { return rest + label; }
};
GACCD_HOST_DEVICE inline double CrossEntropy(const SoftmaxRow& row, float label_logit) {
  // row.label is then 1, or NaN when the logit is infinite.
  if (row.top == label_logit) {
    return log1p(static_cast<double>(row.rest) / static_cast<double>(row.label));
  }
  return static_cast<double>(row.top) - static_cast<double>(label_logit) +
         log(static_cast<double>(row.rest) + static_cast<double>(row.label));
}

}  // namespace gaccd
