// Checks whether this machine can run the ranks of a selftest, which are threads of one process.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct SelftestSize {
  std::int64_t ranks = 1;
  std::int64_t micro_batch = 1;  // maximum samples held by a rank at once
  std::int64_t samples = 1;      // per update
};

// Resources of the machine; unlimited if not known.
struct SelftestLimits {
  std::int64_t bytes = INT64_MAX;     // of memory
  std::int64_t mappings = INT64_MAX;  // vm.max_map_count
};
[[nodiscard]] SelftestLimits ReadSelftestLimits();

// The maximum number of ranks, up to that of `size`, for which memory and mappings suffice. Pure.
[[nodiscard]] std::int64_t MaxRanks(const SelftestSize& size, const SelftestLimits& limits);

// kOs, with the possible number of ranks, if memory, mappings or threads do not suffice for all of
// them. Threads are counted by starting them briefly. Warns of a test that needs much.
[[nodiscard]] Status CheckSelftestLimits(const SelftestSize& size, const SelftestLimits& limits);

// What a large selftest needs, for users who wait for it; empty for a small one. Pure.
[[nodiscard]] std::string SelftestNeeds(const SelftestSize& size);

}  // namespace gaccd
