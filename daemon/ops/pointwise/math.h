// exp, tanh and the normal distribution without branches, so that loops are vectorised and CPU and
// GPU compute the same. Coefficients are minimax fits; errors of exp and tanh are below 1.5 units
// in the last place (tests/unit/ops/math_test.cc). A NaN stays NaN.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

// 2^n. REQUIRES: -127 < n < 128.
GACCD_HOST_DEVICE inline float PowerOfTwo(std::int32_t n) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

// exp(n ln 2 + r) = 2^n exp(r), |r| <= ln 2 / 2. Overflows to infinity, underflows through denormal
// numbers to 0.
GACCD_HOST_DEVICE inline float Exp(float x) {
  x = x > 89.0F ? 89.0F : x;
  x = x < -104.0F ? -104.0F : x;
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * 0.693145752F) - n * 1.42860677e-6F;  // ln 2 in two parts
  float p = 0.000197902438F;
  p = p * r + 0.00139447581F;
  p = p * r + 0.00833349768F;
  p = p * r + 0.0416662954F;
  p = p * r + 0.166666657F;
  p = p * r + 0.5F;
  p = 1.0F + (r + r * r * p);
  const std::int32_t whole = std::bit_cast<std::int32_t>(shifted) - 0x4B400000;
  const std::int32_t half = whole >> 1;  // 2^n itself may be denormal or overflow
  return p * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

// Exponential and division of the formulas here and in elementwise.h. On GPUs, products and sums
// may be fused, so that results differ from those of the CPU by rounding.
// Kernels for 16-bit values may use others (elementwise_cuda.cu).
struct ExactMath {
  GACCD_HOST_DEVICE static float Exp(float x) { return gaccd::Exp(x); }
  GACCD_HOST_DEVICE static float Divide(float a, float b) { return a / b; }
};

// The normal distribution at x: the probability below x, and the density.
struct NormalAt {
  float below;
  float density;
};

// With t = |x|, the probability below -t is density w q(w), w = 1 / (1 + 0.46 t). The error of the
// fit is 1.3e-8, at t = 5 relatively 3e-5.
template <typename Math = ExactMath>
GACCD_HOST_DEVICE inline NormalAt NormalDistribution(float x) {
  const float density = 0.398942280F * Math::Exp(-0.5F * x * x);
  const float w = Math::Divide(1.0F, 1.0F + 0.46F * fabsf(x));
  float q = -0.104894221F;
  q = q * w + 0.57669878F;
  q = q * w - 1.19538236F;
  q = q * w + 0.918868601F;
  q = q * w + 0.0889768824F;
  q = q * w + 0.513436913F;
  q = q * w + 0.45560956F;
  const float beyond = density * (q * w);
  return {x < 0 ? beyond : 1.0F - beyond, density};
}

// x| < 0.625: x + x^3 q(x^2). Otherwise: 1 - 2 / (exp(2|x|) + 1), with the sign of x.
template <typename Math = ExactMath>
GACCD_HOST_DEVICE inline float Tanh(float x) {
  const float t = fabsf(x);
  const float s = x * x;
  float q = 0.00214296184F;
  q = q * s - 0.0081773987F;
  q = q * s + 0.0217007026F;
  q = q * s - 0.0539467633F;
  q = q * s + 0.133332059F;
  q = q * s - 0.333333313F;
  const float small = t + t * s * q;
  const float large = 1.0F - Math::Divide(2.0F, Math::Exp(2.0F * t) + 1.0F);
  return copysignf(t < 0.625F ? small : large, x);
}

}  // namespace gaccd
