// A sharded optimiser on GPUs, over the stand-ins of the GPU and of NCCL: updates with the bits of
// unsharded ones on the same GPUs, in every mode, on any nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/tensor/shard_layout.h"
#include "daemon/train/update.h"
#include "tests/ranks/cuda_shard_runs.h"
#include "tests/sanitized.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

// Of 1, 2, 3 and 4 ranks: on one node, equal and unequal ones, ranks that are no neighbours.
const std::vector<Nodes> kLayouts = {{0},          {0, 0},       {0, 1},
                                     {0, 0, 0},    {0, 0, 1},    {0, 0, 0, 0},
                                     {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}};

// Ragged: of the last micro-step some ranks have less or nothing; every third update is smaller.
EngineCase RaggedCase(int ranks, std::int64_t micro_steps, std::size_t variant) {
  const NamedOptimizer& optimizer = kEveryOptimizer[variant % std::size(kEveryOptimizer)];
  EngineCase test{.name = optimizer.name,
                  .ranks = ranks,
                  .micro = 3,
                  .target = micro_steps * 3 * ranks - ranks / 2 - 1,
                  .updates = 3,
                  .tail = 2,
                  .widths = kBlocks,
                  .optimizer = optimizer.spec,
                  .clip_norm = variant % 2 == 0 ? 0.05 : 0};
  if (variant % 3 == 0) test.optimizer.group = {{.match = "fc2.weight", .freeze = true}};
  if (variant % 3 == 1) test.numerics.precision = Precision::kBF16;
  return test;
}

class CudaShardModes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CudaShardModes, HaveTheBitsOfUnsharded) {
  const Nodes& nodes = kLayouts[GetParam()];
  for (std::size_t steps = 1; steps <= 3; ++steps) {
    // Where gradients are looked at, no update begins before the last one is over.
    const EngineRunOptions options{.gradients = steps == 2};
    // On one node all modes do the same.
    const bool one_node = std::ranges::max(nodes) == 0;
    const auto modes = one_node ? std::span(kModes).subspan(steps - 1, 1) : std::span(kModes);
    ExpectTheBitsOfUnsharded(nodes,
                             RaggedCase(static_cast<int>(nodes.size()),
                                        static_cast<std::int64_t>(steps), 3 * GetParam() + steps),
                             modes, {.options = [&](int) { return options; }});
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, CudaShardModes,
                         ::testing::Range<std::size_t>(0, kSanitized ? 5 : 9));

// All that engines on GPUs are tested with elsewhere, on two nodes, each gradient a message of its
// own; with more parameters, so that every rank owns some.
std::vector<EngineCase> AllShardCases() {
  std::vector<EngineCase> cases = CasesOf(3);
  for (EngineCase& test : cases) {
    if (test.widths.size() == 4) test.widths = kBlocks;
    test.updates = 4;
  }
  EngineCase fp16 = cases.front();
  fp16.name = "fp16";
  fp16.loss_scale = 1024;
  fp16.optimizer = kAveragedAdamW;
  fp16.numerics.precision = Precision::kFP16;
  cases.push_back(fp16);
  return cases;
}

class CudaShardCases : public ::testing::TestWithParam<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(All, CudaShardCases, ::testing::ValuesIn(AllShardCases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaShardCases, HaveTheBitsOfUnsharded) {
  const auto cases = AllShardCases();
  const auto index = static_cast<std::size_t>(
      std::ranges::find(cases, GetParam().name, &EngineCase::name) - cases.begin());
  const Sharding mode = kModes[index % std::size(kModes)];
  standin::SetDelays(index + 1, 20);
  const auto no_waits = [](int) { return EngineRunOptions{}; };
  // A node of one rank would leave nothing to NODE.
  const Nodes nodes = mode == Sharding::kNode ? Nodes{0, 0, 1, 1} : Nodes{0, 0, 1};
  ExpectTheBitsOfUnsharded(nodes, GetParam(), std::span(&mode, 1),
                           {.choice = {.bucket_elements = 1}, .options = no_waits});
  standin::SetDelays(0, 0);
}

TEST(CudaShard, RanksWithoutSamplesTakePart) {
  ExpectTheBitsOfUnsharded({0, 0, 1, 1}, {.name = "empty",
                                          .micro = 2,
                                          .target = 3,
                                          .updates = 3,
                                          .widths = kBlocks,
                                          .optimizer = kAveragedAdamW});
}

// Parts of one rank for all of it: the others own nothing.
TEST(CudaShard, RanksWithoutAPartTakePart) {
  ExpectTheBitsOfUnsharded({0, 0, 0, 1, 1}, {.name = "one block",
                                             .micro = 2,
                                             .target = 9,
                                             .updates = 3,
                                             .optimizer = kAveragedAdamW,
                                             .numerics = {.precision = Precision::kBF16}});
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
TEST(CudaShard, StatisticsOfMicroBatchesInSeveralParts) {
  EngineCase test{.name = "micro",
                  .micro = 4,
                  .target = 15,
                  .updates = 4,
                  .optimizer = kAveragedAdamW,
                  .stats = BatchStatistics::kMicro};
  std::int64_t width = 64;
  do {
    test.widths = {24, ++width, 70, 5};
  } while (width < 300 && !CutsStatistics(ModelOf(test).layout(), 4));
  ASSERT_LT(width, 300);
  ExpectTheBitsOfUnsharded({0, 0, 0, 0}, test, std::span(kModes).first(1));
}

TEST(CudaShard, OnOneGpuTogether) {
  const EngineCase test{.name = "one gpu",
                        .micro = 3,
                        .target = 17,
                        .updates = 4,
                        .tail = 2,
                        .widths = kBlocks,
                        .optimizer = kAveragedAdamW,
                        .clip_norm = 0.05};
  for (const bool overlap : {false, true}) {
    SCOPED_TRACE(overlap);
    const EngineChoice choice{.always_overlap = overlap, .bucket_elements = 1};
    ExpectTheBitsOfUnsharded({0, 0, 0}, test, kModes, {.choice = choice, .one_gpu = true});
  }
}

TEST(CudaShard, CollectivesOfTheModel) {
  ExpectTheBitsOfUnsharded({0, 0}, {.name = "collectives",
                                    .micro = 3,
                                    .target = 9,
                                    .updates = 3,
                                    .widths = kBlocks,
                                    .optimizer = kAveragedAdamW,
                                    .collectives = true,
                                    .evaluate = false});
}

TEST(CudaShard, AnUpdateThatIsNotFiniteChangesNothingOnAnyRank) {
  const EngineCase test{.name = "not finite",
                        .micro = 4,
                        .target = 33,
                        .updates = 5,
                        .widths = kBlocks,
                        .optimizer = kAveragedAdamW,
                        .poisoned = 40,
                        .tolerate_nonfinite = true};
  ExpectTheBitsOfUnsharded({0, 0, 1}, test);
  const auto runs = RunOn({0, 0, 1}, test, Sharding::kNode);
  ASSERT_EQ(runs.size(), 3U);
  const auto skipped = std::ranges::count(runs[2].results, false, &UpdateResult::finite);
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, test.updates);
}

// Biases so low that no unit is active, and one of them steps to -inf: neither loss nor gradient
// shows it, and only the owner of its part has seen it.
TEST(CudaShard, AParameterThatIsNotFiniteIsKnownToAllRanks) {
  EngineCase test{.name = "overflow",
                  .micro = 4,
                  .target = 12,
                  .updates = 4,
                  .widths = kBlocks,
                  .optimizer = {.lr = 0.01, .kind = SgdSpec{.momentum = 0.9}},
                  .tolerate_nonfinite = true,
                  .evaluate = false};
  test.optimizer.group = {{.match = "*.weight", .freeze = true},
                          {.match = "fc3.*", .freeze = true}};
  const FlatEntry bias = *ModelOf(test).layout().Find("fc1.bias");
  const EngineRunOptions options{.update = [&](Engine& engine, Prefetcher& batches,
                                               const Plan& plan, UpdateSettings settings) {
    if (settings.update == 1) {
      GACCD_RETURN_IF_ERROR(engine.ChangeParameters([&](std::span<float> parameters) {
        std::ranges::fill(parameters.subspan(static_cast<std::size_t>(bias.offset),
                                             static_cast<std::size_t>(bias.elements)),
                          -3.4e38F);
        return Status::Ok();
      }));
      settings.lr = 3e38;
    }
    return RunUpdate(engine, batches, PlainAccumulation(plan), settings);
  }};
  std::vector<std::vector<bool>> finite;
  for (const Sharding mode : {Sharding::kNone, Sharding::kOptimizer}) {
    const auto runs = RunOn({0, 0, 0}, test, mode, {.options = [&](int) { return options; }});
    for (const EngineRun& run : runs) {
      auto& found = finite.emplace_back();
      for (const UpdateResult& result : run.results) found.push_back(result.finite);
    }
  }
  EXPECT_THAT(finite, ::testing::SizeIs(6));
  EXPECT_THAT(finite, ::testing::Each(std::vector<bool>{true, true, false, false}));
}

// Rank 1 leaves out a micro-batch in every update.
TEST(CudaShard, DroppedMicroBatches) {
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
TEST(CudaShard, DividedMicroSteps) {
  CudaRanks divided{.choice = {.bucket_elements = 1}};
  divided.choice.refuses_memory = [](std::int64_t samples) { return samples > 2; };
  const EngineCase test{
      .micro = 5, .target = 33, .updates = 3, .widths = kBlocks, .optimizer = kAveragedAdamW};
  const auto expected = RunOn({0, 0, 0}, test, Sharding::kNone, divided);
  ASSERT_EQ(expected.size(), 3U);
  for (const EngineRun& run : RunOn({0, 0, 0}, test, Sharding::kOptimizer, divided)) {
    ExpectTheBits(run, expected.front());
  }
}

TEST(CudaShard, TheHostsDoNotWaitInsideAnUpdate) {
  // Counters are shared by all ranks, so none may begin or end while another is inside.
  std::atomic<int> ready = 0;
  std::atomic<int> done = 0;
  std::atomic<std::int64_t> before = 0;
  std::atomic<std::int64_t> after = 0;
  const auto meet = [](std::atomic<int>& count) {
    ++count;
    while (count < 4) std::this_thread::yield();
  };
  EngineRunOptions options;
  options.before_updates = [&] {
    meet(ready);
    before = standin::Count().host_waits;
  };
  options.after_updates = [&] {
    after = standin::Count().host_waits;
    meet(done);
  };
  const EngineCase test{.micro = 5, .target = 33, .updates = 6, .widths = kBlocks};
  EXPECT_EQ(RunOn({0, 0, 1, 1}, test, Sharding::kNodeOptimizer,
                  {.choice = {.bucket_elements = 1}, .options = [&](int) { return options; }})
                .size(),
            4U);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace gaccd::tests
