// A sharded optimiser: updates with the bits of unsharded ones, with a part of the state and the
// same bytes between the ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/forwarding_communicator.h"
#include "collectives/comm/threads.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/shard_layout.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/optim/every_optimizer.h"

namespace gaccd::tests {
namespace {

// Hands everything on, and counts the elements that this rank gives to each operation.
class CountingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  std::vector<std::size_t> reduced;    // bytes of each all-reduce
  std::vector<std::size_t> scattered;  // of each whole buffer
  std::vector<std::size_t> gathered;

 private:
  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override {
    reduced.push_back(in.bytes());
    return inner().AllReduceSum(in, out, stream);
  }
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle stream) override {
    gathered.push_back(out.bytes());
    return inner().AllGather(in, counts, out, stream);
  }
  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                         StreamHandle stream) override {
    scattered.push_back(in.bytes());
    return inner().ReduceScatter(in, counts, out, stream);
  }
};

std::vector<EngineRun> RunCase(EngineCase test, Sharding shard) {
  test.shard = shard;
  std::vector<EngineRun> runs(static_cast<std::size_t>(test.ranks));
  const Status status = RunThreadRanks(test.ranks, {}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(runs[static_cast<std::size_t>(comm.rank())],
                           RunEngine(comm, test, {}, {.gradients = true}));
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return runs;
}

void ExpectTheSame(const EngineRun& found, const EngineRun& expected) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < found.results.size(); ++u) {
    const UpdateResult& a = found.results[u];
    const UpdateResult& b = expected.results[u];
    EXPECT_EQ(a.samples, b.samples);
    EXPECT_EQ(a.divisor, b.divisor);
    EXPECT_EQ(a.finite, b.finite);
    if (!b.finite) continue;  // NaN
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
    EXPECT_EQ(found.gradients[u], expected.gradients[u]);
  }
  EXPECT_EQ(found.control_words, expected.control_words);
  EXPECT_EQ(found.parameters, expected.parameters);
  EXPECT_EQ(found.state, expected.state);
  EXPECT_EQ(found.digest, expected.digest);
  EXPECT_EQ(found.optimizer_updates, expected.optimizer_updates);
  EXPECT_EQ(found.evaluation.loss_sum, expected.evaluation.loss_sum);
}

void ExpectTheBitsOfUnsharded(const EngineCase& test) {
  SCOPED_TRACE(StrCat(test.name, ", ", test.ranks, " ranks, ", test.target, " samples"));
  const std::vector<EngineRun> expected = RunCase(test, Sharding::kNone);
  const std::vector<EngineRun> found = RunCase(test, Sharding::kOptimizer);
  ASSERT_FALSE(::testing::Test::HasFailure());
  for (const EngineRun& run : found) ExpectTheSame(run, expected.front());
}

const OptimizerGroupSpec kFrozen{.match = "fc2.weight", .freeze = true};

// 9 blocks of parameters, the last of which is not whole, in which 7 ranks find no equal parts.
const std::vector<std::int64_t> kNineBlocks = {24, 90, 70, 5};

class ShardedUpdateTest : public ::testing::TestWithParam<int> {};

TEST_P(ShardedUpdateTest, HasTheBitsOfAnUnshardedOne) {
  const int ranks = GetParam();
  int variant = 0;
  for (const NamedOptimizer& optimizer : kEveryOptimizer) {
    for (const std::int64_t steps : {1, 2, 3}) {
      // Ragged: of the last micro-step some ranks have none or less; every third update is smaller.
      EngineCase test{.name = optimizer.name,
                      .ranks = ranks,
                      .micro = 3,
                      .target = steps * 3 * ranks - ranks / 2 - 1,
                      .updates = 5,
                      .tail = 2,
                      .widths = kNineBlocks,
                      .optimizer = optimizer.spec,
                      .clip_norm = variant % 2 == 0 ? 0.05 : 0};
      if (variant % 3 == 0) test.optimizer.group = {kFrozen};
      if (variant % 4 == 1) test.widths = {12, 20, 5};  // one block: one rank owns all
      ++variant;
      ExpectTheBitsOfUnsharded(test);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedUpdateTest, ::testing::Values(1, 2, 3, 4, 6, 7));

TEST(ShardTest, RanksWithoutSamplesTakePart) {
  ExpectTheBitsOfUnsharded({.name = "empty ranks",
                            .ranks = 6,
                            .micro = 2,
                            .target = 4,
                            .updates = 5,
                            .widths = kNineBlocks,
                            .optimizer = {.lr = 0.01, .kind = AdamWSpec{}, .ema = EmaSpec{0.9}}});
}

TEST(ShardTest, OtherModels) {
  const OptimizerSpec adamw{.lr = 0.01, .kind = AdamWSpec{.epsilon = 1e-3}, .ema = EmaSpec{0.5}};
  ExpectTheBitsOfUnsharded({.name = "contrastive",
                            .ranks = 3,
                            .micro = 3,
                            .target = 17,
                            .updates = 5,
                            .loss = LossKind::kContrastive,
                            .optimizer = adamw,
                            .evaluate = false});
  ExpectTheBitsOfUnsharded({.name = "token weights",
                            .ranks = 4,
                            .micro = 2,
                            .target = 13,
                            .updates = 5,
                            .optimizer = adamw,
                            .tokens = 6,
                            .token_weights = true,
                            .dropout = 0.2});
  ExpectTheBitsOfUnsharded({.name = "texts, grouped",
                            .ranks = 3,
                            .micro = 4,
                            .target = 19,
                            .updates = 5,
                            .widths = {12, 3},
                            .optimizer = adamw,
                            .texts = 20,
                            .cut = 4});
}

TEST(ShardTest, AnUpdateThatIsNotFiniteChangesNothingOnAnyRank) {
  const EngineCase test{.name = "poisoned",
                        .ranks = 3,
                        .micro = 4,
                        .target = 21,
                        .updates = 5,
                        .widths = kNineBlocks,
                        .optimizer = {.lr = 0.01, .kind = AdamWSpec{}, .ema = EmaSpec{0.9}},
                        .poisoned = 30,
                        .tolerate_nonfinite = true};
  ExpectTheBitsOfUnsharded(test);
  int skipped = 0;
  const auto runs = RunCase(test, Sharding::kOptimizer);
  for (const UpdateResult& result : runs[2].results) {
    skipped += result.finite ? 0 : 1;
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, test.updates);
}

// Of one update, whatever its number of micro-steps.
TEST(ShardTest, OneReduceScatterAndOneGatherAnUpdate) {
  constexpr std::int64_t kUpdates = 4;
  EngineCase test{.ranks = 3,
                  .micro = 2,
                  .target = 17,
                  .updates = kUpdates,
                  .widths = kNineBlocks,
                  .optimizer = {.lr = 0.01, .kind = AdamWSpec{}},
                  .control_words = 5,
                  .shard = Sharding::kOptimizer};
  const auto elements = static_cast<std::size_t>(ModelOf(test).layout().size());
  const Status status = RunThreadRanks(test.ranks, {}, [&](Communicator& inner) -> Status {
    CountingCommunicator comm(inner);
    std::size_t before = 0;
    std::vector<std::size_t> gathered;
    GACCD_RETURN_IF_ERROR(RunEngine(comm, test, {},
                                    {.before_updates = [&] { before = comm.gathered.size(); },
                                     .after_updates = [&] { gathered = comm.gathered; }})
                              .status());
    using ::testing::Each;
    using ::testing::SizeIs;
    EXPECT_EQ(before, 0U);
    EXPECT_THAT(comm.scattered, SizeIs(kUpdates));
    EXPECT_THAT(comm.scattered, Each(elements * sizeof(float)));
    // Sums of losses and counts, and the words.
    EXPECT_THAT(comm.reduced, SizeIs(kUpdates));
    EXPECT_THAT(comm.reduced, Each(sizeof(UpdateSums) + 5 * sizeof(double)));
    EXPECT_EQ(gathered.size(), 2U * kUpdates);
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      const std::size_t norm = (elements + 1023) / 1024 * sizeof(double);
      EXPECT_EQ(gathered[i], i % 2 == 0 ? norm : elements * sizeof(float));
    }
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

// Every rank asks for another range of what another number of ranks has saved.
TEST(ShardTest, StateIsTheSameOnAnyNumberOfRanksAndUnsharded) {
  const EngineCase test{
      .ranks = 5,
      .micro = 3,
      .target = 20,
      .updates = 5,
      .widths = kNineBlocks,
      .optimizer = {.lr = 0.01, .kind = AdamWSpec{}, .group = {kFrozen}, .ema = EmaSpec{0.9}}};
  const EngineRun saved = RunCase(test, Sharding::kOptimizer)[4];
  const Model model = ModelOf(test);
  const auto check = [&](Communicator& comm, Sharding shard) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, model,
                                                         {.replica = {.micro_batches = {1}},
                                                          .optimizer = test.optimizer,
                                                          .shard = shard}));
    GACCD_RETURN_IF_ERROR(engine->SetParameters(saved.parameters));
    GACCD_RETURN_IF_ERROR(engine->SetOptimizer(saved.state, saved.optimizer_updates));
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::size_t first = 555 * rank;
    std::vector<float> part(rank == 1 ? 0 : saved.state.size() / 2);
    GACCD_RETURN_IF_ERROR(
        engine->Read(EngineBuffer::kOptimizer, static_cast<std::int64_t>(first), part));
    EXPECT_TRUE(std::ranges::equal(part, std::span(saved.state).subspan(first, part.size())))
        << "rank " << rank << " of " << comm.size();
    // And of the averages, which are exchanged as parts.
    std::vector<float> averages(saved.parameters.size());
    GACCD_RETURN_IF_ERROR(engine->ExchangeAverages());
    GACCD_RETURN_IF_ERROR(engine->GetParameters(averages));
    EXPECT_NE(averages, saved.parameters);
    GACCD_RETURN_IF_ERROR(engine->ExchangeAverages());
    GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine->Digest());
    EXPECT_EQ(digest, saved.digest);
    return Status::Ok();
  };
  for (const int ranks : {1, 3, 5, 7}) {
    for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer}) {
      const Status status =
          RunThreadRanks(ranks, {}, [&](Communicator& comm) { return check(comm, shard); });
      EXPECT_TRUE(status.ok()) << ranks << " ranks: " << status.message();
    }
  }
}

TEST(ShardTest, ARankHasTheMemoryOfItsPart) {
  const EngineCase test{
      .ranks = 3,
      .widths = kNineBlocks,
      .optimizer = {.lr = 0.01, .kind = AdamWSpec{}, .group = {kFrozen}, .ema = EmaSpec{0.9}}};
  const Model model = ModelOf(test);
  const ShardLayout shards = ShardLayout::Make(model.layout(), test.ranks);
  const Status status = RunThreadRanks(test.ranks, {}, [&](Communicator& comm) -> Status {
    EngineOptions options{.replica = {.micro_batches = {1}}, .optimizer = test.optimizer};
    GACCD_ASSIGN_OR_RETURN(const auto whole, MakeEngine(comm, model, options));
    options.shard = Sharding::kOptimizer;
    GACCD_ASSIGN_OR_RETURN(const auto part, MakeEngine(comm, model, options));
    const std::int64_t own = shards.parts()[static_cast<std::size_t>(comm.rank())].state_elements;
    EXPECT_EQ(whole->memory().host_bytes - part->memory().host_bytes,
              3 * (model.layout().trainable_size() - own) * std::int64_t{sizeof(float)});
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

FlatLayout LayoutOf(const std::vector<std::pair<std::int64_t, bool>>& entries) {
  FlatLayout layout;
  for (const auto& [elements, frozen] : entries) {
    (void)layout.Add(StrCat("p", layout.entries().size()), {elements}, {}, frozen);
  }
  return layout;
}

TEST(ShardLayoutTest, PartsAreNeighboursAtBlocksWithEqualShares) {
  const std::vector<std::vector<std::pair<std::int64_t, bool>>> layouts = {
      {{9000, false}},
      {{17, false}},
      {{5000, false}, {70'000, true}, {3, false}, {33'333, false}, {4097, true}},
      {{100'000, true}, {10'240, false}},
      {{4096, true}},
  };
  for (const auto& entries : layouts) {
    const FlatLayout layout = LayoutOf(entries);
    for (const int world : {1, 2, 3, 7, 64, 240}) {
      SCOPED_TRACE(StrCat(layout.size(), " elements, ", world, " ranks"));
      const ShardLayout shards = ShardLayout::Make(layout, world);
      ASSERT_EQ(std::ssize(shards.parts()), world);
      ShardPart end;
      for (std::size_t r = 0; r < shards.parts().size(); ++r) {
        const ShardPart& part = shards.parts()[r];
        EXPECT_EQ(part.first, end.first);
        EXPECT_EQ(part.state_first, end.state_first);
        EXPECT_TRUE(part.first % FlatLayout::kBlock == 0 || part.elements == 0) << part.first;
        EXPECT_LT(std::abs(part.state_elements - layout.trainable_size() / world),
                  FlatLayout::kBlock + 1);
        EXPECT_EQ(shards.elements()[r], part.elements);
        EXPECT_EQ(shards.blocks()[r],
                  (part.elements + FlatLayout::kBlock - 1) / FlatLayout::kBlock);
        EXPECT_EQ(OptimizerRanges::Of(layout, part).elements(), part.state_elements);
        end = {.first = part.first + part.elements,
               .state_first = part.state_first + part.state_elements};
      }
      EXPECT_EQ(end.first, layout.size());
      EXPECT_EQ(end.state_first, layout.trainable_size());
    }
  }
}

TEST(ShardLayoutTest, FrozenParametersDoNotCount) {
  // Trainable: blocks 0 and 1, and from the end of block 4 on two more.
  const FlatLayout layout = LayoutOf({{2048, false}, {3072, true}, {2048, false}});
  const ShardLayout shards = ShardLayout::Make(layout, 2);
  EXPECT_EQ(shards.parts()[0], (ShardPart{.elements = 2048, .state_elements = 2048}));
  EXPECT_EQ(
      shards.parts()[1],
      (ShardPart{
          .first = 2048, .elements = 3072 + 2048, .state_first = 2048, .state_elements = 2048}));
}

}  // namespace
}  // namespace gaccd::tests
