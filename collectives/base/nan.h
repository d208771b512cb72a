// NaN as people read it: "nan". What arithmetic gives has a sign, and is printed as "-nan".
#pragma once

#include <limits>
#include <type_traits>

namespace gaccd {

// `value`, and of any NaN the one without a sign.
template <typename T>
[[nodiscard]] constexpr T WithoutNanSign(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (value != value) return std::numeric_limits<T>::quiet_NaN();
  }
  return value;
}

}  // namespace gaccd
