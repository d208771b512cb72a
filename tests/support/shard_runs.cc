#include "tests/support/shard_runs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd::tests {
namespace {

bool AddsInTwoLevels(Sharding mode, const Nodes& nodes) {
  return std::ranges::max(nodes) > 0 && mode != Sharding::kOptimizer &&
         ShardGrid::Make(mode, CountRanksPerNode(nodes)).parts() > 1;
}

// Another order of sums is amplified by batch norms of few samples and, on GPUs, in half precision.
bool AmplifiesRounding(const EngineCase& test) {
  return test.stats || test.tolerate_nonfinite ||
         (OnGpus() && test.numerics.precision != Precision::kF32);
}

}  // namespace

std::string DescribeSharding(Sharding mode, const Nodes& nodes) {
  std::string text = StrCat(Name(mode), ", nodes");
  for (const int node : nodes) text += StrCat(" ", node);
  return text;
}

std::vector<int> CountRanksPerNode(const Nodes& nodes) {
  std::vector<int> ranks(static_cast<std::size_t>(std::ranges::max(nodes) + 1));
  for (const int node : nodes) ++ranks[static_cast<std::size_t>(node)];
  return ranks;
}

EngineCase RaggedCase(int ranks, std::int64_t micro_steps, const NamedOptimizer& optimizer,
                      std::size_t variant) {
  EngineCase test{.name = optimizer.name,
                  .ranks = ranks,
                  .micro = 3,
                  .target = std::max(micro_steps * 3 * ranks - ranks / 2 - 1, std::int64_t{1}),
                  .updates = OnGpus() ? 3 : 4,
                  .tail = 2,
                  .widths = kBlocks,
                  .optimizer = optimizer.spec,
                  .clip_norm = variant % 2 == 0 ? 0.05 : 0};
  if (variant % 3 == 0) test.optimizer.group = {{.match = "fc2.weight", .freeze = true}};
  return test;
}

EngineOptions MakeEngineOptions(const EngineCase& test, Sharding shard,
                                const EngineChoice& choice) {
  return {.replica = {.micro_batches = {1}},
          .optimizer = test.optimizer,
          .shard = shard,
          .numerics = test.numerics,
          .choice = choice};
}

std::vector<EngineRun> RunOn(const Nodes& nodes, EngineCase test, Sharding shard,
                             EngineRanks ranks) {
  test.shard = shard;
  test.ranks = static_cast<int>(nodes.size());
  ranks.node_of = nodes;
  if (!ranks.options) ranks.options = [](int) { return EngineRunOptions{.gradients = true}; };
  return RunTestedRanks(test, ranks);
}

void ExpectTheBits(const EngineRun& found, const EngineRun& expected) {
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
    if (!found.gradients.empty()) {
      EXPECT_EQ(found.gradients[u], expected.gradients[u]) << "update " << u + 1;
    }
  }
  EXPECT_EQ(found.control_words, expected.control_words);
  EXPECT_EQ(found.parameters, expected.parameters);
  EXPECT_EQ(found.state, expected.state);
  EXPECT_EQ(found.digest, expected.digest);
  EXPECT_EQ(found.optimizer_updates, expected.optimizer_updates);
  EXPECT_EQ(found.evaluation.loss_sum, expected.evaluation.loss_sum);
}

void ExpectTheBitsOfUnsharded(const Nodes& nodes, const EngineCase& test,
                              std::span<const Sharding> modes, const EngineRanks& ranks) {
  const auto flat = RunOn(nodes, test, Sharding::kNone);
  std::vector<EngineRun> two_levels;
  for (const Sharding mode : modes) {
    SCOPED_TRACE(
        StrCat(DescribeSharding(mode, nodes), ", ", test.name, ", ", test.target, " samples"));
    const bool in_two = AddsInTwoLevels(mode, nodes);
    if (in_two && two_levels.empty()) {
      two_levels = RunOn(nodes, test, Sharding::kNone, {.two_levels = true});
    }
    const auto found = RunOn(nodes, test, mode, ranks);
    const auto& expected = in_two ? two_levels : flat;
    ASSERT_EQ(found.size(), nodes.size());
    ASSERT_EQ(expected.size(), nodes.size());
    if (!AmplifiesRounding(test)) {
      EXPECT_LT(Distance(found[0].parameters, flat[0].parameters), 1e-6);
    }
    for (const EngineRun& run : found) ExpectTheBits(run, expected.front());
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace gaccd::tests
