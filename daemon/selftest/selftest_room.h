// Whether this machine can run the ranks of a selftest, which are threads of one process.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"

namespace gaccd {

struct SelftestSize {
  std::int64_t ranks = 1;
  std::int64_t micro_batch = 1;  // the most samples that a rank holds at once
  std::int64_t samples = 1;      // of an update
};

// What the machine has for them: unlimited where it does not say.
struct SelftestRoom {
  std::int64_t bytes = INT64_MAX;     // of memory
  std::int64_t mappings = INT64_MAX;  // vm.max_map_count
};
[[nodiscard]] SelftestRoom FindSelftestRoom();

// The most ranks, up to those of `size`, for which there is memory and mappings. Pure.
[[nodiscard]] std::int64_t MostRanks(const SelftestSize& size, const SelftestRoom& room);

// kOs, with how many ranks this machine can run, when it has no memory, mappings or threads for all
// of them. The threads are counted by starting them for a moment.
[[nodiscard]] Status CheckSelftestRoom(const SelftestSize& size, const SelftestRoom& room);

}  // namespace gaccd
