// --memory: what a rank may hold, "80GB", "512 MiB", "1.5GB": a number above 0 with one of B, kB,
// MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (of 1024). Without a unit it is refused.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Bytes, rounded down, at least 1. kUsage, with the text, for all that is none, or does not fit 63
// bits.
[[nodiscard]] Result<std::int64_t> ParseMemory(std::string_view text);

}  // namespace gaccd
