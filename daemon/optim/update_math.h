// Factors of the gradient of one update, written once for CPUs and GPUs.
#pragma once

#include "daemon/tensor/host_device.h"

namespace gaccd {

[[nodiscard]] GACCD_HOST_DEVICE inline bool IsFinite(double x) { return x - x == 0; }

// What clipping multiplies the gradient by: min(1, clip_norm / norm); 1 when clip_norm is 0 (do not
// clip). torch.nn.utils.clip_grad_norm_ divides by (norm + 1e-6) instead, which shortens a clipped
// gradient by the relative amount 1e-6 / norm; here a clipped gradient has the norm clip_norm
// exactly. REQUIRES: norm finite.
[[nodiscard]] GACCD_HOST_DEVICE inline double ClipFactor(double norm, double clip_norm) {
  return clip_norm <= 0 || norm <= clip_norm ? 1 : clip_norm / norm;
}

// What the accumulated gradient, in which a prediction weighs 1 / planned, is to be multiplied with
// to become that of a mean over `divisor`. 1 where there is no such mean: divisor <= 0 or NaN.
[[nodiscard]] GACCD_HOST_DEVICE inline double DivisorCorrection(double planned, double divisor) {
  return divisor > 0 ? planned / divisor : 1;
}

}  // namespace gaccd
