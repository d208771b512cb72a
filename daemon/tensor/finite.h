#pragma once

#include <cstddef>
#include <span>

namespace gaccd {

// The index of the first value that is NaN or infinite; values.size() if all are finite.
[[nodiscard]] std::size_t FirstNotFinite(std::span<const float> values);

}  // namespace gaccd
