// Compact lists of numbers for users.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gaccd {

// "0-7,16", and "0-232:8" for 0, 8, ..., 232. REQUIRES: strictly ascending.
[[nodiscard]] std::string NumberList(const std::vector<std::int64_t>& numbers);

}  // namespace gaccd
