// Runs of a sharded optimiser on the tested device, and of unsharded ones to the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/support/tested_ranks.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {

inline constexpr Sharding kModes[] = {Sharding::kOptimizer, Sharding::kNode,
                                      Sharding::kNodeOptimizer};
inline constexpr Sharding kAllModes[] = {Sharding::kNone, Sharding::kOptimizer, Sharding::kNode,
                                         Sharding::kNodeOptimizer};

// 9 blocks of parameters, the last one not whole, so that parts have one to three blocks.
inline const std::vector<std::int64_t> kBlocks = {24, 90, 70, 5};

inline const OptimizerSpec kAveragedAdamW{
    .lr = 0.01, .kind = AdamWSpec{.epsilon = 1e-3}, .ema = EmaSpec{0.5}};

// "optimizer, nodes 0 0 1".
std::string DescribeSharding(Sharding mode, const Nodes& nodes);

// By node, how many ranks it has.
std::vector<int> CountRanksPerNode(const Nodes& nodes);

// Ragged: of the last micro-step some ranks have less or nothing; every third update is smaller.
EngineCase RaggedCase(int ranks, std::int64_t micro_steps, const NamedOptimizer& optimizer,
                      std::size_t variant);

// Engines that are prepared for micro-batches of one sample.
EngineOptions MakeEngineOptions(const EngineCase& test, Sharding shard, const EngineChoice& choice);

// The case on ranks of these nodes; unless `ranks` has options, also the gradients.
std::vector<EngineRun> RunOn(const Nodes& nodes, EngineCase test, Sharding shard,
                             EngineRanks ranks = {});

void ExpectTheBits(const EngineRun& found, const EngineRun& expected);

// In these modes, each on all ranks; `ranks` is for the sharded runs.
void ExpectTheBitsOfUnsharded(const Nodes& nodes, const EngineCase& test,
                              std::span<const Sharding> modes = kModes,
                              const EngineRanks& ranks = {});

}  // namespace gaccd::tests
