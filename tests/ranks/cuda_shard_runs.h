// Runs of a sharded optimiser on GPUs, over the stand-ins of the GPU and of NCCL, and of unsharded
// ones to the same bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/tensor/shard_grid.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {

inline constexpr Sharding kModes[] = {Sharding::kOptimizer, Sharding::kNode,
                                      Sharding::kNodeOptimizer};

using Nodes = std::vector<int>;  // by rank its node

// 9 blocks of parameters, the last one not whole, so that parts have one to three blocks.
inline const std::vector<std::int64_t> kBlocks = {24, 90, 70, 5};

inline const OptimizerSpec kAveragedAdamW{
    .lr = 0.01, .kind = AdamWSpec{.epsilon = 1e-3}, .ema = EmaSpec{0.5}};

inline std::vector<int> RanksOf(const Nodes& nodes) {
  std::vector<int> ranks(static_cast<std::size_t>(std::ranges::max(nodes) + 1));
  for (const int node : nodes) ++ranks[static_cast<std::size_t>(node)];
  return ranks;
}

inline bool AddsInTwoLevels(Sharding mode, const Nodes& nodes) {
  return mode != Sharding::kOptimizer && ShardGrid::Of(mode, RanksOf(nodes)).parts() > 1;
}

// The case on GPUs of these nodes, on a new machine. Empty where a rank has failed.
inline std::vector<EngineRun> RunOn(const Nodes& nodes, EngineCase test, Sharding shard,
                                    CudaRanks ranks = {}) {
  test.shard = shard;
  test.ranks = static_cast<int>(nodes.size());
  ranks.node_of = nodes;
  if (!ranks.options) ranks.options = [](int) { return EngineRunOptions{.gradients = true}; };
  ResetGpus(test.ranks);
  std::vector<EngineRun> runs;
  for (RankOutcome& outcome : RunCudaRanks(test, ranks)) {
    EXPECT_OK(outcome.run);
    if (!outcome.run.ok()) return {};
    runs.push_back(*std::move(outcome.run));
  }
  for (int device = -1; device < test.ranks; ++device) {
    EXPECT_EQ(standin::LiveBytes(device), 0) << device;
  }
  EXPECT_EQ(standin::LiveNcclComms(), 0);
  return runs;
}

inline void ExpectTheBits(const EngineRun& found, const EngineRun& expected) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < found.results.size(); ++u) {
    const UpdateResult& a = found.results[u];
    const UpdateResult& b = expected.results[u];
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_EQ(a.divisor, b.divisor);
    EXPECT_EQ(a.finite, b.finite) << "update " << u + 1;
    if (!b.finite) continue;  // NaN
    EXPECT_EQ(a.loss, b.loss) << "update " << u + 1;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << "update " << u + 1;
  }
  for (std::size_t u = 0; u < found.gradients.size(); ++u) {
    if (!expected.results[u].finite) continue;
    EXPECT_EQ(found.gradients[u], expected.gradients[u]) << "update " << u + 1;
  }
  EXPECT_EQ(found.control_words, expected.control_words);
  EXPECT_EQ(found.parameters, expected.parameters);
  EXPECT_EQ(found.state, expected.state);
  EXPECT_EQ(found.digest, expected.digest);
  EXPECT_EQ(found.optimizer_updates, expected.optimizer_updates);
  EXPECT_EQ(found.evaluation.loss_sum, expected.evaluation.loss_sum);
}

// In these modes, each on all ranks.
inline void ExpectTheBitsOfUnsharded(const Nodes& nodes, const EngineCase& test,
                                     std::span<const Sharding> modes = kModes,
                                     const CudaRanks& ranks = {}) {
  const auto flat = RunOn(nodes, test, Sharding::kNone);
  std::vector<EngineRun> two_levels;
  for (const Sharding mode : modes) {
    SCOPED_TRACE(StrCat(Name(mode), ", ", nodes.size(), " ranks on ", nodes.back() + 1, " nodes, ",
                        test.name, ", ", test.target));
    const bool in_two = AddsInTwoLevels(mode, nodes) && std::ranges::max(nodes) > 0;
    if (in_two && two_levels.empty()) {
      two_levels = RunOn(nodes, test, Sharding::kNone, {.two_levels = true});
    }
    const auto found = RunOn(nodes, test, mode, ranks);
    const auto& expected = in_two ? two_levels : flat;
    ASSERT_EQ(found.size(), nodes.size());
    ASSERT_EQ(expected.size(), nodes.size());
    // In half precision, and by batch norms of few samples, another order of sums is amplified.
    if (test.numerics.precision == Precision::kF32 && !test.stats && !test.tolerate_nonfinite) {
      EXPECT_LT(Distance(found[0].parameters, flat[0].parameters), 1e-6);
    }
    for (const EngineRun& run : found) ExpectTheBits(run, expected.front());
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace gaccd::tests
