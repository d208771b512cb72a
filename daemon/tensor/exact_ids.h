// The limit of integers that a graph computes with, or reads from a table, as f32.
#pragma once

#include <cstdint>

namespace gaccd {

// f32 has all integers up to this one.
inline constexpr std::int64_t kLargestExactId = std::int64_t{1} << 24;

}  // namespace gaccd
