// exp, erf and tanh as straight-line code, so that loops over them become vector code and CPU and
// GPU compute the same. The coefficients are least-maximum fits; errors are below 1.5 units in
// the last place (tests/unit/engine/math_test.cc). A NaN stays a NaN.
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

// exp(n ln 2 + r) = 2^n exp(r), |r| <= ln 2 / 2. Overflows to infinity, underflows over the
// denormal numbers to 0.
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
  const std::int32_t half = whole >> 1;  // 2^n itself may be no normal number
  return p * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

// |x| < 1: x + x q(x^2). Beyond: 1 - exp(-|x| q(|x|)), with the sign of x; 1 from |x| = 4.
GACCD_HOST_DEVICE inline float Erf(float x) {
  const float t = fabsf(x);
  const float s = x * x;
  float small = 7.85385491e-05F;
  small = small * s - 0.000801019196F;
  small = small * s + 0.00518832728F;
  small = small * s - 0.026853811F;
  small = small * s + 0.112835854F;
  small = small * s - 0.37612626F;
  small = small * s + 0.128379166F;
  small = t + t * small;
  const float c = t > 4.0F ? 4.0F : t;
  float q = 3.85070916e-06F;
  q = q * c - 3.21417137e-05F;
  q = q * c - 0.000119136639F;
  q = q * c + 0.00312558468F;
  q = q * c - 0.0229962654F;
  q = q * c + 0.105574332F;
  q = q * c + 0.63546133F;
  q = q * c + 1.12858796F;
  const float large = 1.0F - Exp(-c * q);
  return copysignf(t < 1.0F ? small : large, x);
}

// |x| < 0.625: x + x^3 q(x^2). Beyond: 1 - 2 / (exp(2|x|) + 1), with the sign of x.
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
  const float large = 1.0F - 2.0F / (Exp(2.0F * t) + 1.0F);
  return copysignf(t < 0.625F ? small : large, x);
}

}  // namespace gaccd
