// A sharded optimiser in every mode over every layout of nodes: updates with the bits of unsharded
// ones on the same device, whose sums have the same order. On CPUs and on GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "daemon/device/cpu/onednn.h"
#include "daemon/tensor/shard_layout.h"
#include "daemon/train/update.h"
#include "tests/sanitized.h"
#include "tests/support/shard_runs.h"

namespace gaccd::tests {
namespace {

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

// GPUs, whose stand-ins take ten times as long, have the first layouts alone; under a sanitizer one
// of each kind is tested.
std::vector<std::size_t> LayoutsHere() {
  if (kSanitized) return {4, 12};
  std::vector<std::size_t> all(OnGpus() ? 9 : kLayouts.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

class ShardLayouts : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(All, ShardLayouts, ::testing::ValuesIn(LayoutsHere()));

TEST_P(ShardLayouts, AreBitIdenticalToUnsharded) {
  const Nodes& nodes = kLayouts[GetParam()];
  const std::size_t most_steps = OnGpus() ? 3 : 4;
  for (std::size_t steps = 1; steps <= most_steps; ++steps) {
    const std::size_t variant = most_steps * GetParam() + steps;
    EngineCase test = RaggedCase(static_cast<int>(nodes.size()), static_cast<std::int64_t>(steps),
                                 kEveryOptimizer[variant % std::size(kEveryOptimizer)], variant);
    if (OnGpus() && variant % 3 == 1) test.numerics.precision = Precision::kBF16;
    // Where gradients are looked at, no update begins before the last one is over.
    const EngineRunOptions options{.gradients = !OnGpus() || steps == 2};
    // On one node all modes do the same.
    const bool one_of_them = OnGpus() && std::ranges::max(nodes) == 0;
    const auto modes = one_of_them ? std::span(kModes).subspan(steps - 1, 1) : std::span(kModes);
    ExpectTheBitsOfUnsharded(nodes, test, modes, {.options = [&](int) { return options; }});
    if (HasFailure()) return;
  }
}

// Which nodes a case is for; none: on the other device `engine_cuda_cases.h` has it.
struct ShardCase {
  EngineCase test;
  std::vector<Nodes> on_cpus;
  std::vector<Nodes> on_gpus;
};

// The published case: 30 nodes of 8 ranks, 3072 samples in two micro-steps.
Nodes PublishedNodes() {
  Nodes nodes;
  for (int rank = 0; rank < (kSanitized ? 2 : 30) * 8; ++rank) nodes.push_back(rank / 8);
  return nodes;
}

std::vector<ShardCase> ShardCases() {
  const auto of = [](EngineCase test) {
    test.updates = test.tolerate_nonfinite ? 5 : OnGpus() ? 3 : 4;
    test.optimizer = kAveragedAdamW;
    return test;
  };
  const Nodes two_and_three = {0, 0, 1, 1, 1};
  return {
      {of({.name = "rank_without_samples", .micro = 2, .target = 3, .widths = kBlocks}),
       {{0, 0, 0, 0, 0, 0}, {0, 0, 1, 1, 1, 1}},
       {{0, 0, 1, 1}}},
      // Parts of one rank for all of it: the others own nothing.
      {of({.name = "one_block",
           .micro = 2,
           .target = 9,
           .numerics = {.precision = Precision::kBF16}}),
       {{0, 0, 0, 1, 1}},
       {{0, 0, 0, 1, 1}}},
      {of({.name = "bf16",
           .micro = 3,
           .target = 29,
           .widths = kBlocks,
           .numerics = {.precision = Precision::kBF16}}),
       {{0, 0, 1, 1}},
       {}},
      {of({.name = "not_finite",
           .micro = 4,
           .target = 33,
           .widths = kBlocks,
           .poisoned = 40,
           .tolerate_nonfinite = true}),
       {{0, 0, 0}, two_and_three},
       {{0, 0, 1}}},
      {of({.name = "collectives",
           .micro = 3,
           .target = 9,
           .widths = kBlocks,
           .collectives = true,
           .evaluate = false}),
       {{0, 0}},
       {{0, 0}}},
      {of({.name = "contrastive",
           .micro = 3,
           .target = 23,
           .loss = LossKind::kContrastive,
           .evaluate = false}),
       {{0, 0, 0}, two_and_three},
       {}},
      {of({.name = "token_weights",
           .micro = 2,
           .target = 17,
           .tokens = 6,
           .token_weights = true,
           .dropout = 0.2}),
       {{0, 0, 0, 0}, two_and_three},
       {}},
      {of({.name = "texts", .micro = 4, .target = 19, .widths = {12, 3}, .texts = 20, .cut = 4}),
       {{0, 0, 0}},
       {}},
      {of({.name = "published",
           .micro = 10,
           .target = kSanitized ? 205 : 3072,
           .widths = kBlocks,
           .clip_norm = 0.05,
           .evaluate = false}),
       {PublishedNodes()},
       {}},
  };
}

TEST(ShardModes, AreBitIdenticalToUnsharded) {
  for (auto& [test, on_cpus, on_gpus] : ShardCases()) {
    const bool in_bf16 = test.numerics.precision == Precision::kBF16;
    if (in_bf16 && !OnGpus() && DetectCpuBf16() == CpuBf16::kNone) continue;
    for (const Nodes& nodes : OnGpus() ? on_gpus : on_cpus) {
      SCOPED_TRACE(test.name);
      ExpectTheBitsOfUnsharded(nodes, test);
    }
  }
}

// Not on all updates, and as the others have found it.
TEST(ShardModes, SkipNonFiniteUpdate) {
  for (const auto& [test, on_cpus, on_gpus] : ShardCases()) {
    if (!test.tolerate_nonfinite) continue;
    const auto runs = RunOn({0, 0, 1}, test, Sharding::kNode);
    ASSERT_EQ(runs.size(), 3U);
    const auto skipped = std::ranges::count(runs[2].results, false, &UpdateResult::finite);
    EXPECT_GT(skipped, 0);
    EXPECT_LT(skipped, test.updates);
  }
}

// Whether a part ends between the running mean and the count of a batch norm.
bool CutsStatistics(const FlatLayout& layout, int parts) {
  const ShardLayout shards = ShardLayout::Make(layout, parts);
  return std::ranges::any_of(shards.parts(), [&](const ShardPart& part) {
    const auto entry = std::ranges::find_if(layout.entries(), [&](const FlatEntry& one) {
      return one.offset + one.padded_elements() > part.first;
    });
    return part.first > 0 && entry != layout.entries().end() && entry->buffer &&
           !entry->name.ends_with("running_mean");
  });
}

// Then no rank has all that the statistics of micro-batches are made from.
TEST(ShardModes, MicroBatchStatisticsInSeveralParts) {
  EngineCase test{.name = "micro",
                  .micro = 4,
                  .target = 15,
                  .updates = 4,
                  .optimizer = kAveragedAdamW,
                  .stats = BatchStatistics::kMicro};
  std::int64_t width = 64;
  do {
    test.widths = {24, ++width, 70, 5};
  } while (width < 300 && !CutsStatistics(MakeCaseModel(test).layout(), 4));
  ASSERT_LT(width, 300);
  ExpectTheBitsOfUnsharded({0, 0, 0, 0}, test, std::span(kModes).first(1));
}

// Rank 1 leaves out a micro-batch in every update.
TEST(ShardModes, DroppedMicroBatches) {
  const auto drop = [](int rank) {
    return EngineRunOptions{.gradients = true,
                            .update = [rank](Engine& engine, Prefetcher& batches, const Plan& plan,
                                             UpdateSettings settings) {
                              settings.samples = 29;
                              return RunUpdate(engine, batches, PlainAccumulation(plan), settings,
                                               {.is_dropped = [rank](std::int64_t step) {
                                                 return rank == 1 && step == 1;  // of 4 + 4 + 3
                                               }});
                            }};
  };
  const EngineCase test{
      .micro = 5, .target = 33, .updates = 3, .widths = kBlocks, .optimizer = kAveragedAdamW};
  const auto expected = RunOn({0, 0, 0}, test, Sharding::kNone, {.options = drop});
  ASSERT_EQ(expected.size(), 3U);
  for (const Sharding mode : kModes) {
    for (const EngineRun& run : RunOn({0, 0, 0}, test, mode, {.options = drop})) {
      ExpectTheBits(run, expected.front());
    }
  }
}

// There is memory for two samples at once.
TEST(ShardModes, DividedMicroSteps) {
  EngineRanks divided{.choice = {.bucket_elements = 1}};
  divided.choice.refuses_memory = [](std::int64_t samples) { return samples > 2; };
  const EngineCase test{
      .micro = 5, .target = 33, .updates = 3, .widths = kBlocks, .optimizer = kAveragedAdamW};
  const auto expected = RunOn({0, 0, 0}, test, Sharding::kNone, divided);
  ASSERT_EQ(expected.size(), 3U);
  for (const EngineRun& run : RunOn({0, 0, 0}, test, Sharding::kOptimizer, divided)) {
    ExpectTheBits(run, expected.front());
  }
}

}  // namespace
}  // namespace gaccd::tests
