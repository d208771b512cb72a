// Every mode of shard over every layout of nodes: the bits of an unsharded run whose sums have the
// same order, the bytes of the formula, the state of any other mode and world.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/engine/shard_traffic.h"
#include "daemon/launch/cpu_bf16.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/update_control.h"
#include "tests/sanitized.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/support/two_level_comm.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

constexpr Sharding kModes[] = {Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer};

using Nodes = std::vector<int>;  // by rank its node

// Of 1, 2, 3, 4 and 6 ranks: on one node, equal and unequal ones, ranks that are no neighbours.
const std::vector<Nodes> kLayouts = {{0},
                                     {0, 0},
                                     {0, 1},
                                     {0, 0, 0},
                                     {0, 0, 1},
                                     {0, 0, 0, 0},
                                     {0, 0, 1, 1},
                                     {0, 1, 0, 1},
                                     {0, 1, 1, 1},
                                     {0, 0, 1, 1, 2, 2},
                                     {0, 0, 0, 1, 1, 1},
                                     {0, 1, 2, 0, 1, 2},
                                     {0, 0, 0, 0, 1, 1}};

std::string TextOf(const Nodes& nodes) {
  std::string text = "nodes";
  for (const int node : nodes) text += StrCat(" ", node);
  return text;
}

Nodes EqualNodes(int nodes, int ranks_of_each) {
  Nodes node_of;
  for (int r = 0; r < nodes * ranks_of_each; ++r) node_of.push_back(r / ranks_of_each);
  return node_of;
}

// 9 blocks of parameters, the last one not whole, so that parts have one to three blocks.
const std::vector<std::int64_t> kBlocks = {24, 90, 70, 5};

enum class Sums : std::uint8_t { kFlat, kTwoLevels };

std::vector<EngineRun> RunOn(const Nodes& nodes, EngineCase test, Sharding shard, Sums sums) {
  test.shard = shard;
  test.ranks = static_cast<int>(nodes.size());
  std::vector<EngineRun> runs(nodes.size());
  const Status status =
      RunThreadRanks(test.ranks, {.comm = {}, .node_of = nodes}, [&](Communicator& comm) -> Status {
        EngineRun& run = runs[static_cast<std::size_t>(comm.rank())];
        const EngineRunOptions options{.gradients = true};
        if (sums == Sums::kFlat) {
          GACCD_ASSIGN_OR_RETURN(run, RunEngine(comm, test, {}, options));
          return Status::Ok();
        }
        GACCD_ASSIGN_OR_RETURN(const auto two_levels, TwoLevelCommunicator::Make(comm));
        GACCD_ASSIGN_OR_RETURN(run, RunEngine(*two_levels, test, {}, options));
        return Status::Ok();
      });
  EXPECT_OK(status);
  return runs;
}

void ExpectSame(const EngineRun& found, const EngineRun& expected) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < found.results.size(); ++u) {
    EXPECT_EQ(found.results[u].finite, expected.results[u].finite);
    if (!expected.results[u].finite) continue;  // NaN
    EXPECT_EQ(found.results[u].loss, expected.results[u].loss);
    EXPECT_EQ(found.results[u].grad_norm, expected.results[u].grad_norm);
    EXPECT_EQ(found.gradients[u], expected.gradients[u]);
  }
  EXPECT_EQ(found.control_words, expected.control_words);
  EXPECT_EQ(found.parameters, expected.parameters);
  EXPECT_EQ(found.state, expected.state);
  EXPECT_EQ(found.digest, expected.digest);
  EXPECT_EQ(found.evaluation.loss_sum, expected.evaluation.loss_sum);
}

bool AddsInTwoLevels(Sharding mode, const Nodes& nodes) {
  std::vector<int> ranks_of_nodes(static_cast<std::size_t>(std::ranges::max(nodes) + 1));
  for (const int node : nodes) ++ranks_of_nodes[static_cast<std::size_t>(node)];
  return mode != Sharding::kOptimizer && ShardGrid::Of(mode, ranks_of_nodes).parts() > 1;
}

// In all modes.
void ExpectTheBitsOfUnsharded(const Nodes& nodes, const EngineCase& test) {
  const EngineRun flat = RunOn(nodes, test, Sharding::kNone, Sums::kFlat).front();
  const EngineRun two_levels = RunOn(nodes, test, Sharding::kNone, Sums::kTwoLevels).front();
  EXPECT_LT(Distance(two_levels.parameters, flat.parameters), 1e-6);
  for (const Sharding mode : kModes) {
    SCOPED_TRACE(StrCat(Name(mode), ", ", TextOf(nodes), ", ", test.name, ", ", test.target));
    const std::vector<EngineRun> found = RunOn(nodes, test, mode, Sums::kFlat);
    for (const EngineRun& run : found) {
      ExpectSame(run, AddsInTwoLevels(mode, nodes) ? two_levels : flat);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Ragged: of the last micro-step some ranks have less or nothing; every third update is smaller.
EngineCase RaggedCase(int ranks, std::int64_t micro_steps, std::size_t variant) {
  const NamedOptimizer& optimizer = kEveryOptimizer[variant % std::size(kEveryOptimizer)];
  EngineCase test{.name = optimizer.name,
                  .ranks = ranks,
                  .micro = 3,
                  .target = micro_steps * 3 * ranks - ranks / 2 - 1,
                  .updates = 4,
                  .tail = 2,
                  .widths = kBlocks,
                  .optimizer = optimizer.spec,
                  .clip_norm = variant % 2 == 0 ? 0.05 : 0};
  if (variant % 3 == 0) test.optimizer.group = {{.match = "fc2.weight", .freeze = true}};
  return test;
}

class ShardModesTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ShardModesTest, HaveTheBitsOfUnsharded) {
  const Nodes& nodes = kLayouts[GetParam()];
  for (std::size_t steps = 1; steps <= 4; ++steps) {
    ExpectTheBitsOfUnsharded(
        nodes, RaggedCase(static_cast<int>(nodes.size()), static_cast<std::int64_t>(steps),
                          4 * GetParam() + steps));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShardModesTest, ::testing::Range<std::size_t>(0, 13));

const OptimizerSpec kAdamW{.lr = 0.01, .kind = AdamWSpec{.epsilon = 1e-3}, .ema = EmaSpec{0.5}};

TEST(ShardModes, RanksWithoutSamplesTakePart) {
  ExpectTheBitsOfUnsharded({0, 0, 1, 1, 1, 1}, {.name = "empty",
                                                .ranks = 6,
                                                .micro = 2,
                                                .target = 4,
                                                .updates = 4,
                                                .widths = kBlocks,
                                                .optimizer = kAdamW});
}

TEST(ShardModes, InBf16) {
  if (Bf16OfCpu() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has no bf16";
  ExpectTheBitsOfUnsharded({0, 0, 1, 1}, {.name = "bf16",
                                          .ranks = 4,
                                          .micro = 3,
                                          .target = 29,
                                          .updates = 4,
                                          .widths = kBlocks,
                                          .optimizer = kAdamW,
                                          .numerics = {.precision = Precision::kBF16}});
}

TEST(ShardModes, OtherModels) {
  const Nodes nodes = {0, 0, 1, 1, 1};
  ExpectTheBitsOfUnsharded(nodes, {.name = "contrastive",
                                   .ranks = 5,
                                   .micro = 3,
                                   .target = 23,
                                   .updates = 4,
                                   .loss = LossKind::kContrastive,
                                   .optimizer = kAdamW,
                                   .evaluate = false});
  ExpectTheBitsOfUnsharded(nodes, {.name = "token weights",
                                   .ranks = 5,
                                   .micro = 2,
                                   .target = 17,
                                   .updates = 4,
                                   .optimizer = kAdamW,
                                   .tokens = 6,
                                   .token_weights = true,
                                   .dropout = 0.2});
  ExpectTheBitsOfUnsharded(nodes, {.name = "not finite",
                                   .ranks = 5,
                                   .micro = 4,
                                   .target = 33,
                                   .updates = 5,
                                   .widths = kBlocks,
                                   .optimizer = kAdamW,
                                   .poisoned = 40,
                                   .tolerate_nonfinite = true});
}

// The published case: 30 nodes of 8 ranks, 3072 samples in two micro-steps.
TEST(ShardModes, Of240Ranks) {
  const int nodes = tests::kSanitized ? 5 : 30;
  ExpectTheBitsOfUnsharded(EqualNodes(nodes, 8), {.name = "240 ranks",
                                                  .ranks = nodes * 8,
                                                  .micro = 10,
                                                  .target = nodes * 3072 / 30,
                                                  .updates = 2,
                                                  .widths = kBlocks,
                                                  .optimizer = kAdamW,
                                                  .clip_norm = 0.05,
                                                  .evaluate = false});
}

// Several pieces of state are gathered, and parts begin and end inside of them: a save by one mode
// and world, read by all others.
TEST(ShardModes, StateIsTheSameInAnyModeOnAnyRanks) {
  const EngineCase test{.ranks = 5,
                        .micro = 3,
                        .target = 14,
                        .updates = 1,
                        .widths = {64, 900, 800, 5},  // 779,000 values, 3 pieces a buffer
                        .optimizer = kAdamW,
                        .evaluate = false};
  const EngineRun saved = RunOn({0, 0, 0, 1, 1}, test, Sharding::kNodeOptimizer, Sums::kFlat)[4];
  const EngineRun other = RunOn({0, 0, 0, 1, 1}, test, Sharding::kNode, Sums::kFlat)[2];
  EXPECT_EQ(saved.state, other.state);
  const Model model = ModelOf(test);
  const auto check = [&](Communicator& comm, Sharding shard) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, model,
                                                         {.replica = {.micro_batches = {1}},
                                                          .optimizer = test.optimizer,
                                                          .shard = shard}));
    GACCD_RETURN_IF_ERROR(engine->SetParameters(saved.parameters));
    GACCD_RETURN_IF_ERROR(engine->SetOptimizer(saved.state, saved.optimizer_updates));
    std::vector<float> state(saved.state.size() - 1000);  // every rank another range
    const auto first = static_cast<std::size_t>(comm.rank() * 100);
    GACCD_RETURN_IF_ERROR(
        engine->Read(EngineBuffer::kOptimizer, static_cast<std::int64_t>(first), state));
    EXPECT_TRUE(std::ranges::equal(state, std::span(saved.state).subspan(first, state.size())));
    GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine->Digest());
    EXPECT_EQ(digest, saved.digest);
    return Status::Ok();
  };
  for (const Nodes& nodes : {Nodes{0, 0, 1}, Nodes{0, 0, 0, 1, 1, 2, 2}, Nodes{0}}) {
    if (tests::kSanitized && nodes.size() != 3) continue;
    for (const Sharding mode :
         {Sharding::kNone, Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
      SCOPED_TRACE(StrCat(Name(mode), ", ", TextOf(nodes)));
      EXPECT_OK(RunThreadRanks(static_cast<int>(nodes.size()), {.comm = {}, .node_of = nodes},
                               [&](Communicator& comm) { return check(comm, mode); }));
    }
  }
}

TEST(ShardGridTest, RanksBeyondTheSmallestNodeOwnNothing) {
  const Nodes nodes = {0, 0, 0, 1, 1};
  FlatLayout layout;
  (void)layout.Add("w", {9000}, {}, /*frozen=*/false);
  for (const auto& [mode, parts] :
       {std::pair(Sharding::kOptimizer, 5), std::pair(Sharding::kNode, 2),
        std::pair(Sharding::kNodeOptimizer, 4)}) {
    const ShardGrid grid = ShardGrid::Of(mode, Nodes{3, 2});
    EXPECT_EQ(grid.parts(), parts) << Name(mode);
    const ShardLayout shards = ShardLayout::Make(layout, parts);
    std::vector<ShardPart> owned(5);
    EXPECT_OK(RunThreadRanks(5, {.comm = {}, .node_of = nodes}, [&](Communicator& comm) -> Status {
      GACCD_ASSIGN_OR_RETURN(const auto exchange, ShardExchange::Make(comm, mode, layout, 1));
      owned[static_cast<std::size_t>(comm.rank())] = exchange->own();
      return Status::Ok();
    }));
    if (mode == Sharding::kOptimizer) continue;
    EXPECT_EQ(owned[2].elements, 0);
    EXPECT_EQ(owned[2].state_elements, 0);
    const auto part = [&](int i) { return shards.parts()[static_cast<std::size_t>(i)]; };
    const bool all = mode == Sharding::kNodeOptimizer;
    EXPECT_EQ(owned[0], part(0));
    EXPECT_EQ(owned[1], part(all ? 2 : 1));
    EXPECT_EQ(owned[3], part(all ? 1 : 0));
    EXPECT_EQ(owned[4], part(all ? 3 : 1));
  }
}

// What the ranks have sent between the beginning of the first update and the end of the last.
CommTraffic TrafficOfUpdates(const Nodes& nodes, EngineCase test, Sharding mode) {
  test.shard = mode;
  test.ranks = static_cast<int>(nodes.size());
  std::mutex mutex;
  CommTraffic all;
  EXPECT_OK(
      RunThreadRanks(test.ranks, {.comm = {}, .node_of = nodes}, [&](Communicator& comm) -> Status {
        CommTraffic before;
        CommTraffic after;
        GACCD_RETURN_IF_ERROR(RunEngine(comm, test, {},
                                        {.before_updates = [&] { before = comm.traffic(); },
                                         .after_updates = [&] { after = comm.traffic(); }})
                                  .status());
        const std::lock_guard lock(mutex);
        all.sent += after.sent - before.sent;
        all.between_nodes += after.between_nodes - before.between_nodes;
        return Status::Ok();
      }));
  return all;
}

// Of losses, counts and control words.
CommTraffic TrafficOfWords(const EngineCase& test, std::span<const int> ranks_of_nodes) {
  return TrafficOfSum(
      static_cast<std::int64_t>(sizeof(UpdateSums) + test.control_words * sizeof(double)),
      ranks_of_nodes);
}

// Whatever the number of micro-steps.
TEST(ShardModes, BytesAreThoseOfTheFormula) {
  const std::vector<std::vector<int>> worlds = {{1}, {5}, {1, 1, 1}, {2, 2}, {3, 3}, {4, 1, 2}};
  for (const std::vector<int>& ranks_of_nodes : worlds) {
    Nodes nodes;
    for (std::size_t n = 0; n < ranks_of_nodes.size(); ++n) {
      nodes.insert(nodes.end(), static_cast<std::size_t>(ranks_of_nodes[n]), static_cast<int>(n));
    }
    for (const std::int64_t steps : {1, 3}) {
      EngineCase test = RaggedCase(static_cast<int>(nodes.size()), steps, 6);
      test.updates = 3;
      test.target = std::max<std::int64_t>(test.target, 1);
      const FlatLayout layout = ModelOf(test).layout();
      for (const Sharding mode :
           {Sharding::kNone, Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
        SCOPED_TRACE(StrCat(Name(mode), ", ", TextOf(nodes)));
        CommTraffic update = TrafficOfUpdate(mode, layout, ranks_of_nodes);
        update += TrafficOfWords(test, ranks_of_nodes);
        const CommTraffic found = TrafficOfUpdates(nodes, test, mode);
        EXPECT_EQ(found.sent, test.updates * update.sent);
        EXPECT_EQ(found.between_nodes, test.updates * update.between_nodes);
      }
    }
  }
}

}  // namespace
}  // namespace gaccd::tests
