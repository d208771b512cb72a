// Element counts per rank for tests of ragged collectives.
#pragma once

#include <cstdint>
#include <vector>

namespace gaccd::testing {

// Equal, ragged, with empty ranks, all on one rank, nothing at all, and large enough to need
// several pieces.
[[nodiscard]] inline std::vector<std::vector<std::int64_t>> RaggedCounts(int ranks) {
  const auto make = [ranks](auto count_of) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(count_of(r));
    return counts;
  };
  return {
      make([](int) { return 5; }),
      make([](int r) { return (r * 7 + 3) % 5; }),                // some ranks have none
      make([](int r) { return r % 2 == 0 ? 0 : 13 + r; }),        // rank 0 has none
      make([](int r) { return r == 0 ? 17 : 0; }),                // only the first
      make([ranks](int r) { return r == ranks - 1 ? 314 : 0; }),  // only the last
      make([](int) { return 0; }),
      make([](int r) { return 4097 + 31 * r; }),
  };
}

}  // namespace gaccd::testing
