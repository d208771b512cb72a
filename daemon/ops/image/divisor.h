// Divisor: a number by which many others are divided, using a multiplication and a shift, as GPUs
// have no integer division.
#pragma once

#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

class Divisor {
 public:
  // REQUIRES: 1 <= value < 2^31.
  explicit constexpr Divisor(std::int32_t value) : value_(value) {
    while ((std::int64_t{1} << shift_) < value) ++shift_;
    // 2^32 (2^shift - value) / value + 1: n + n factor / 2^32 is slightly above n 2^shift / value.
    const std::uint64_t rest =
        (std::uint64_t{1} << shift_) - static_cast<std::uint64_t>(std::int64_t{value});
    factor_ = static_cast<std::uint32_t>((rest << 32) / static_cast<std::uint32_t>(value) + 1);
  }

  // NOLINTNEXTLINE(google-explicit-constructor): behaves as the number, except in divisions
  GACCD_HOST_DEVICE constexpr operator std::int32_t() const { return value_; }

  // REQUIRES: n >= 0.
  GACCD_HOST_DEVICE friend constexpr std::int32_t operator/(std::int32_t n, Divisor by) {
    const auto dividend = static_cast<std::uint32_t>(n);
    const auto high = static_cast<std::uint32_t>((std::uint64_t{dividend} * by.factor_) >> 32);
    return static_cast<std::int32_t>((dividend + high) >> by.shift_);
  }

 private:
  std::int32_t value_;
  std::uint32_t factor_ = 0;
  std::uint32_t shift_ = 0;
};

}  // namespace gaccd
