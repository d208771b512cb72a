// Compact lists of numbers or host names for users.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gaccd {

// "0-7,16", and "0-232:8" for 0, 8, ..., 232. REQUIRES: strictly ascending.
[[nodiscard]] std::string NumberList(const std::vector<std::int64_t>& numbers);

// Joins names that differ only in a number at the end, as SLURM does: "n[1-30],login". Sorted,
// without duplicates.
[[nodiscard]] std::string HostList(const std::vector<std::string>& hosts);

}  // namespace gaccd
