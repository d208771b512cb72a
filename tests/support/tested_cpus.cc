#include "collectives/comm/threads.h"
#include "tests/support/tested_ranks.h"

namespace gaccd::tests {

bool OnGpus() { return false; }

std::vector<Result<EngineRun>> TryTestedRanks(const EngineCase& test, const EngineRanks& ranks) {
  return RunCpuRanks(test, ranks);
}

Status OnTestedRanks(const Nodes& node_of,
                     const std::function<Status(Communicator& over, const EngineChoice& choice,
                                                Communicator* device_comm)>& body) {
  return RunThreadRanks(static_cast<int>(node_of.size()), {.comm = {}, .node_of = node_of},
                        [&](Communicator& comm) { return body(comm, {}, nullptr); });
}

}  // namespace gaccd::tests
