// Many numbers or host names in little space, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gaccd {

// "0-7,16", and "0-232:8" for 0, 8, ..., 232. REQUIRES: ascending, without repetition.
[[nodiscard]] std::string NumberList(const std::vector<std::int64_t>& numbers);

// Names that differ only in a number at their end, as SLURM writes them: "n[1-30],login". Sorted,
// each once.
[[nodiscard]] std::string HostList(const std::vector<std::string>& hosts);

}  // namespace gaccd
