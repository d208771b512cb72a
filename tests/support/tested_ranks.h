// Ranks on the device that a program tests: train_test CPUs (tested_cpus.cc), ranks_test GPUs over
// the stand-ins (tested_gpus.cc). A test of both devices is a source of both programs.
#pragma once

#include "tests/support/engine_ranks.h"

namespace gaccd::tests {

[[nodiscard]] bool OnGpus();

// The case on new devices, by rank.
std::vector<Result<EngineRun>> TryTestedRanks(const EngineCase& test,
                                              const EngineRanks& ranks = {});

// The same; EXPECTs that no rank fails and that no memory is left. Empty where a rank failed.
std::vector<EngineRun> RunTestedRanks(const EngineCase& test, const EngineRanks& ranks = {});

// Once a rank, on new devices: with what the rank's engine takes. `device_comm`: null on CPUs.
Status OnTestedRanks(const Nodes& node_of,
                     const std::function<Status(Communicator& over, const EngineChoice& choice,
                                                Communicator* device_comm)>& body);

}  // namespace gaccd::tests
