// The global gradient norm and what clipping does with it.
#pragma once

#include <span>

namespace gaccd {

struct GradientNorm {
  double norm = 0;     // sqrt of the sum of squares; not finite when `finite` is false
  bool finite = true;  // no value is NaN or infinite
};

// One pass, squares and sums in double (the square of a finite float never overflows there, so the
// sum is finite exactly when all values are). The order of the additions is fixed: 16 lanes a block
// of 4096 values, blocks in order; so every machine gets the same bits.
[[nodiscard]] GradientNorm GlobalNorm(std::span<const float> gradient);

// The factor for Optimizer::Step: min(1, clip_norm / norm); 1 when clip_norm is 0 (do not clip).
// torch.nn.utils.clip_grad_norm_ divides by (norm + 1e-6) instead, which shortens a clipped
// gradient by the relative amount 1e-6 / norm; here a clipped gradient has the norm clip_norm
// exactly. REQUIRES: norm finite.
[[nodiscard]] float ClipFactor(double norm, double clip_norm);

}  // namespace gaccd
