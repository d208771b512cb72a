// The single cases of conformance.h. Each is called by all ranks and returns what was wrong.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/ranks/conformance.h"
#include "tests/ranks/rank_data.h"

namespace gaccd::tests {

// Elements of one rank in the largest ragged case.
[[nodiscard]] inline std::int64_t LargeCount(const ConformanceOptions& options) {
  return static_cast<std::int64_t>(std::min<std::size_t>(options.largest, 4097));
}

using CaseFunction = Status(Communicator& comm, const ConformanceOptions& options);
CaseFunction CheckTopology, CheckAllReduceSizes, CheckAllReduceMemory, CheckAllReduceBits,
    CheckSumInRankOrder, CheckAllGatherRagged, CheckReduceScatterRagged, CheckBroadcastRoots,
    CheckBf16Sums, CheckBarrierOrder, CheckAllocate, CheckSplit, CheckSplitCorners, CheckTraffic,
    CheckMessages, CheckManyInARow;

}  // namespace gaccd::tests
