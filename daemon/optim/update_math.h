// One parameter of one update: the formulas, written once for the host loops and the GPU
// kernels (no std:: calls). All in fp32; what depends only on the update is prepared in double.
#pragma once

#include <math.h>

#include "daemon/tensor/host_device.h"

namespace gaccd {

// d = g + decay p;  m = momentum m + d;  p -= lr m   (Nesterov: p -= lr (d + momentum m))
// The first m is d because the state starts at 0: the same as PyTorch, which copies d there.
struct SgdFactors {
  float lr;
  float momentum;
  float weight_decay;
  float gradient_scale;
};

GACCD_HOST_DEVICE inline float DecayedGradient(const SgdFactors& f, float param, float gradient) {
  return gradient * f.gradient_scale + f.weight_decay * param;
}

GACCD_HOST_DEVICE inline void SgdUpdate(const SgdFactors& f, float gradient, float* param) {
  *param -= f.lr * DecayedGradient(f, *param, gradient);
}

GACCD_HOST_DEVICE inline void SgdMomentumUpdate(const SgdFactors& f, float gradient, float* param,
                                                float* momentum) {
  const float m = f.momentum * *momentum + DecayedGradient(f, *param, gradient);
  *momentum = m;
  *param -= f.lr * m;
}

GACCD_HOST_DEVICE inline void SgdNesterovUpdate(const SgdFactors& f, float gradient, float* param,
                                                float* momentum) {
  const float d = DecayedGradient(f, *param, gradient);
  const float m = f.momentum * *momentum + d;
  *momentum = m;
  *param -= f.lr * (d + f.momentum * m);
}

// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization"), update t = 1, 2, ...:
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g
//   p = p (1 - lr decay) - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
struct AdamWFactors {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float keep;        // 1 - lr * decay
  float step_size;   // lr / (1 - b1^t)
  float root_scale;  // 1 / sqrt(1 - b2^t)
  float epsilon;     // > 0: a value without any gradient gives 0 / epsilon = 0
  float gradient_scale;
};

GACCD_HOST_DEVICE inline void AdamWUpdate(const AdamWFactors& f, float gradient, float* param,
                                          float* first, float* second) {
  const float g = gradient * f.gradient_scale;
  const float m = f.beta1 * *first + f.one_minus_beta1 * g;
  const float v = f.beta2 * *second + f.one_minus_beta2 * g * g;
  *first = m;
  *second = v;
  *param = f.keep * *param - f.step_size * m / (sqrtf(v) * f.root_scale + f.epsilon);
}

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
