#include <gtest/gtest.h>

#include <utility>

#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/support/tested_ranks.h"

namespace gaccd::tests {

bool OnGpus() { return true; }

std::vector<Result<EngineRun>> TryTestedRanks(const EngineCase& test, const EngineRanks& ranks) {
  const int world = test.ranks * test.stages;
  ResetGpus(world);
  std::vector<Result<EngineRun>> runs;
  for (RankOutcome& outcome : RunCudaRanks(test, ranks)) runs.push_back(std::move(outcome.run));
  for (int device = -1; device < world; ++device) {
    EXPECT_EQ(standin::LiveBytes(device), 0) << device;
  }
  EXPECT_EQ(standin::LiveNcclComms(), 0);
  return runs;
}

Status OnTestedRanks(const Nodes& node_of,
                     const std::function<Status(Communicator& over, const EngineChoice& choice,
                                                Communicator* device_comm)>& body) {
  const auto ranks = static_cast<int>(node_of.size());
  ResetGpus(ranks);
  return RunNcclRanks(
      ranks, {.group = {.node_of = node_of}},
      [&](Communicator& nccl, Communicator& over) { return body(over, Cuda(over.rank()), &nccl); });
}

}  // namespace gaccd::tests
