// Element counts per rank for tests of ragged collectives.
#pragma once

#include <cstdint>
#include <vector>

namespace gaccd::tests {

// Equal, ragged, with empty ranks, all on one rank, nothing at all, and large enough to need
// several pieces if `large` is.
[[nodiscard]] inline std::vector<std::vector<std::int64_t>> RaggedCounts(int ranks,
                                                                         std::int64_t large) {
  const auto make = [ranks](auto count_of) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < ranks; ++r) counts.push_back(std::int64_t{count_of(r)});
    return counts;
  };
  return {
      make([](int) { return 5; }),
      make([](int r) { return (r * 7 + 3) % 5; }),                // some ranks have none
      make([](int r) { return r % 2 == 0 ? 0 : 13 + r; }),        // rank 0 has none
      make([](int r) { return r == 0 ? 17 : 0; }),                // only the first
      make([ranks](int r) { return r == ranks - 1 ? 314 : 0; }),  // only the last
      make([](int) { return 0; }),
      make([large](int r) { return large + 31 * r; }),
  };
}

}  // namespace gaccd::tests
