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

[[nodiscard]] Status CheckTopology(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckAllReduceSizes(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckAllReduceMemory(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckAllReduceBits(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckSumInRankOrder(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckAllGatherRagged(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckReduceScatterRagged(Communicator& comm,
                                              const ConformanceOptions& options);
[[nodiscard]] Status CheckBroadcastRoots(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckBf16Sums(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckBarrierOrder(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckAllocate(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckSplit(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckSplitCorners(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckTraffic(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckMessages(Communicator& comm, const ConformanceOptions& options);
[[nodiscard]] Status CheckManyInARow(Communicator& comm, const ConformanceOptions& options);

}  // namespace gaccd::tests
