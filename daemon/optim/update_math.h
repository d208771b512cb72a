// Factors on the gradient of an update, shared by CPUs and GPUs.
#pragma once

#include "daemon/tensor/host_device.h"

namespace gaccd {

[[nodiscard]] GACCD_HOST_DEVICE inline bool IsFinite(double x) { return x - x == 0; }

// The clip factor: min(1, clip_norm / norm); 1 if clip_norm is 0 (no clipping).
// torch.nn.utils.clip_grad_norm_ divides by (norm + 1e-6) instead, which makes a clipped gradient
// shorter by the relative amount 1e-6 / norm; here its norm is exactly clip_norm. REQUIRES: norm is
// finite.
[[nodiscard]] GACCD_HOST_DEVICE inline double ClipFactor(double norm, double clip_norm) {
  return clip_norm <= 0 || norm <= clip_norm ? 1 : clip_norm / norm;
}

// The factor that turns an accumulated gradient, in which a prediction weighs 1 / planned, into the
// gradient of a mean over `divisor`. 1 if there is no such mean: divisor <= 0 or NaN.
[[nodiscard]] GACCD_HOST_DEVICE inline double DivisorCorrection(double planned, double divisor) {
  return divisor > 0 ? planned / divisor : 1;
}

}  // namespace gaccd
