// 16-bit floating-point types, the C++ type of a floating-point DType, and which values are finite.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/base/dtype.h"
#include "daemon/tensor/host_device.h"

namespace gaccd {

// Bf16: the upper half of a float: sign, exponent and 7 of its 23 fraction bits. A storage type:
// arithmetic is done in float.
struct Bf16 {
  std::uint16_t bits = 0;
};

[[nodiscard]] GACCD_HOST_DEVICE inline float ToFloat(float value) { return value; }
[[nodiscard]] GACCD_HOST_DEVICE inline float ToFloat(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Rounds to the nearest bf16, ties to even. Overflow gives infinity; NaN stays NaN.
[[nodiscard]] GACCD_HOST_DEVICE inline Bf16 ToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  // Adds just under half of the last kept place, so that a carry rounds up; the lowest kept bit
  // decides ties.
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

// Converts a float to T: float, Bf16 or Fp16.
template <typename T>
[[nodiscard]] GACCD_HOST_DEVICE inline T FromFloat(float value);
template <>
[[nodiscard]] GACCD_HOST_DEVICE inline float FromFloat<float>(float value) {
  return value;
}
template <>
[[nodiscard]] GACCD_HOST_DEVICE inline Bf16 FromFloat<Bf16>(float value) {
  return ToBf16(value);
}

// Packs two 16-bit values into one word, `low` in the lower half, as in memory.
template <typename T>
[[nodiscard]] GACCD_HOST_DEVICE inline std::uint32_t PackPair(float low, float high);
template <>
[[nodiscard]] GACCD_HOST_DEVICE inline std::uint32_t PackPair<Bf16>(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t both;  // one instruction instead of a dozen
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return ToBf16(low).bits | static_cast<std::uint32_t>(ToBf16(high).bits) << 16;
#endif
}

// Fp16: IEEE half precision: a sign, 5 bits of exponent and 10 of fraction; from 2^-24 to 65504. A
// storage type: arithmetic is done in float.
struct Fp16 {
  std::uint16_t bits = 0;
};

[[nodiscard]] GACCD_HOST_DEVICE inline float ToFloat(Fp16 value) {
#if defined(__CUDA_ARCH__)
  float wide;  // one instruction instead of several
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t rest = (value.bits & 0x7fffU) << 13;  // the exponent is 112 too small
  const std::uint32_t bits =
      value.bits % 0x8000U >= 0x7c00U
          ? rest | 0x7f800000U  // infinite, NaN
          : std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) * 0x1p112F);
  return std::bit_cast<float>(sign | bits);
#endif
}

// Rounds to the nearest fp16, ties to even; 65520 and above give infinity; NaN stays NaN.
[[nodiscard]] GACCD_HOST_DEVICE inline Fp16 ToFp16(float value) {
#if defined(__CUDA_ARCH__)
  Fp16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
#else
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t size = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (size > 0x7f800000U) {
    half = 0x7e00U;
  } else if (size >= 0x477ff000U) {  // 65520
    half = 0x7c00U;
  } else if (size < 0x38800000U) {
    // Below 2^-14, fp16 values have a spacing of 2^-24, as floats in [0.5, 1) have.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3f000000U;
  } else {
    // As in ToBf16(), with an exponent that is smaller by 112.
    half = (size - 0x38000000U + 0xfffU + (size >> 13 & 1U)) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | half)};
#endif
}

template <>
[[nodiscard]] GACCD_HOST_DEVICE inline Fp16 FromFloat<Fp16>(float value) {
  return ToFp16(value);
}

// Packs two values into one word, `low` in the lower half, as in memory.
template <>
[[nodiscard]] GACCD_HOST_DEVICE inline std::uint32_t PackPair<Fp16>(float low, float high) {
#if defined(__CUDA_ARCH__)
  std::uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return ToFp16(low).bits | static_cast<std::uint32_t>(ToFp16(high).bits) << 16;
#endif
}

// Calls f(T()) with T Bf16 or Fp16. REQUIRES: dtype is kBF16 or kFP16.
template <typename F>
auto WithHalf(DType dtype, F&& f) {
  return dtype == DType::kFP16 ? f(Fp16()) : f(Bf16());
}

// Calls f(T()) with T float, Bf16 or Fp16. REQUIRES: dtype is kF32, kBF16 or kFP16.
template <typename F>
auto WithFloat(DType dtype, F&& f) {
  return dtype == DType::kF32 ? f(float()) : WithHalf(dtype, f);
}

// The index of the first value that is NaN or infinite; values.size() if all are finite.
[[nodiscard]] std::size_t FirstNotFinite(std::span<const float> values);

}  // namespace gaccd
