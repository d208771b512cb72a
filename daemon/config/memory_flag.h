// --memory: the memory of a rank, "80GB", "512 MiB", "1.5GB": a number above 0 with a unit: B, kB
// or KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024). The unit is required.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Bytes, rounded down, at least 1. kUsage, with the text, if it is invalid or does not fit into 63
// bits.
[[nodiscard]] Result<std::int64_t> ParseMemory(std::string_view text);

}  // namespace gaccd
