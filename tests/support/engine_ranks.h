// Ranks as threads, each with an engine: on CPUs, or on what the program tests.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "tests/support/engine_runs.h"

namespace gaccd::tests {

using Nodes = std::vector<int>;  // by rank its node; empty: one node

struct EngineRanks {
  EngineChoice choice = {};  // the device and its number are set by who runs it
  std::chrono::milliseconds bound{20'000};
  bool one_gpu = false;  // for all ranks
  bool windows = false;
  Nodes node_of = {};
  bool two_levels = false;  // floats are summed as in a sharded update (two_level_comm.h)
  // Options of a rank's run.
  std::function<EngineRunOptions(int rank)> options = nullptr;
};

// The case on one of these ranks. Collective.
Result<EngineRun> RunRank(Communicator& engine_comm, const EngineCase& test,
                          const EngineChoice& choice, const EngineRanks& ranks);

// The case on CPUs, by rank.
std::vector<Result<EngineRun>> RunCpuRanks(const EngineCase& test, const EngineRanks& ranks = {});

}  // namespace gaccd::tests
