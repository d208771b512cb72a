// Bf16: the upper half of a float: sign, exponent and 7 of its 23 fraction bits. A storage type:
// arithmetic is done in float.
#pragma once

#include <bit>
#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

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

// Converts a float to T: float, Bf16 or Fp16 (fp16.h).
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

}  // namespace gaccd
