// Strict reading of the numbers SLURM writes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gaccd {

// The text as a decimal number in [0, 2^63). Empty for anything else, also a sign, spaces or "0x".
[[nodiscard]] std::optional<std::int64_t> ParseCount(std::string_view text);

}  // namespace gaccd
