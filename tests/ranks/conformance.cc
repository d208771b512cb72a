#include "tests/ranks/conformance.h"

#include <array>

#include "tests/ranks/conformance_cases.h"

namespace gaccd::tests {
namespace {

constexpr std::array<ConformanceCase, 16> kCases = {{
    {"topology", CheckTopology},
    {"all-reduce: sizes and types", CheckAllReduceSizes},
    {"all-reduce: in place, allocated memory", CheckAllReduceMemory},
    {"all-reduce: same bits on all ranks and again", CheckAllReduceBits},
    {"sums in rank order, within one node", CheckSumInRankOrder},
    {"sums of bf16", CheckBf16Sums},
    {"all-gather: ragged", CheckAllGatherRagged},
    {"reduce-scatter: ragged", CheckReduceScatterRagged},
    {"broadcast: each root", CheckBroadcastRoots},
    {"barrier", CheckBarrierOrder},
    {"allocate", CheckAllocate},
    {"split", CheckSplit},
    {"split: nobody, alone, nested", CheckSplitCorners},
    {"bytes sent", CheckTraffic},
    {"messages between two ranks", CheckMessages},
    {"many operations in a row", CheckManyInARow},
}};

}  // namespace

std::span<const ConformanceCase> ConformanceCases() { return kCases; }

Status RunConformance(Communicator& comm, const ConformanceOptions& options) {
  Status first;
  for (const ConformanceCase& test : kCases) {
    Status status = test.run(comm, options);
    if (status.ok() || !first.ok()) continue;
    first = std::move(status).WithContext(StrCat(test.name, ", rank ", comm.rank()));
  }
  return first;
}

}  // namespace gaccd::tests
