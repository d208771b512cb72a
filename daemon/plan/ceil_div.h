// ceil(a / b) of integers.
#pragma once

#include <cstdint>

namespace gaccd {

// REQUIRES: a >= 0, b >= 1.
[[nodiscard]] constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace gaccd
