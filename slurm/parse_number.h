// Strict reading of the numbers SLURM writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gaccd {

// A non-negative decimal number that fills the whole text and fits 63 bits; nothing otherwise. No
// sign, no spaces, no "0x".
[[nodiscard]] std::optional<std::int64_t> ParseCount(std::string_view text);

}  // namespace gaccd
