// The global gradient norm. What clipping does with it is ClipFactor() of update_math.h.
#pragma once

#include <span>

#include "daemon/optim/update_math.h"

namespace gaccd {

struct GradientNorm {
  double norm = 0;     // sqrt of the sum of squares; not finite when `finite` is false
  bool finite = true;  // no value is NaN or infinite
};

// One pass, squares and sums in double (the square of a finite float never overflows there, so the
// sum is finite exactly when all values are). The order of the additions is fixed: 16 lanes a block
// of 4096 values, blocks in order; so every machine gets the same bits.
[[nodiscard]] GradientNorm GlobalNorm(std::span<const float> gradient);

}  // namespace gaccd
