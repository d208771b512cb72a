// A sharded optimiser on CPUs: every optimiser over many ranks, what the ranks exchange and keep;
// which parts there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/forwarding_communicator.h"
#include "collectives/comm/threads.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/shard_layout.h"
#include "tests/support/shard_runs.h"
#include "tests/support/status_matchers.h"

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

class ShardedUpdateTest : public ::testing::TestWithParam<int> {};

TEST_P(ShardedUpdateTest, IsBitIdenticalToUnsharded) {
  const int ranks = GetParam();
  std::size_t variant = 0;
  for (const NamedOptimizer& optimizer : kEveryOptimizer) {
    for (const std::int64_t steps : {1, 2, 3}) {
      EngineCase test = RaggedCase(ranks, steps, optimizer, variant);
      test.updates = 5;
      if (variant % 4 == 1) test.widths = {12, 20, 5};  // one block: one rank owns all
      ++variant;
      ExpectTheBitsOfUnsharded(Nodes(static_cast<std::size_t>(ranks)), test,
                               std::span(kModes).first(1));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedUpdateTest, ::testing::Values(1, 2, 3, 4, 6, 7));

// Of one update, whatever its number of micro-steps.
TEST(ShardTest, UsesOneReduceScatterAndOneGatherPerUpdate) {
  constexpr std::int64_t kUpdates = 4;
  EngineCase test{.ranks = 3,
                  .micro = 2,
                  .target = 17,
                  .updates = kUpdates,
                  .widths = kBlocks,
                  .optimizer = {.lr = 0.01, .kind = AdamWSpec{}},
                  .control_words = 5,
                  .shard = Sharding::kOptimizer};
  const auto elements = static_cast<std::size_t>(MakeCaseModel(test).layout().size());
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

TEST(ShardTest, RankHasMemoryOfItsPart) {
  const EngineCase test{.ranks = 3,
                        .widths = kBlocks,
                        .optimizer = {.lr = 0.01,
                                      .kind = AdamWSpec{},
                                      .group = {{.match = "fc2.weight", .freeze = true}},
                                      .ema = EmaSpec{0.9}}};
  const Model model = MakeCaseModel(test);
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

FlatLayout MakeLayout(const std::vector<std::pair<std::int64_t, bool>>& entries) {
  FlatLayout layout;
  for (const auto& [elements, frozen] : entries) {
    (void)layout.Add(StrCat("p", layout.entries().size()), {elements}, {}, frozen);
  }
  return layout;
}

TEST(ShardLayoutTest, PartsAreContiguousEqualBlocks) {
  const std::vector<std::vector<std::pair<std::int64_t, bool>>> layouts = {
      {{9000, false}},
      {{17, false}},
      {{5000, false}, {70'000, true}, {3, false}, {33'333, false}, {4097, true}},
      {{100'000, true}, {10'240, false}},
      {{4096, true}},
  };
  for (const auto& entries : layouts) {
    const FlatLayout layout = MakeLayout(entries);
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
        EXPECT_EQ(OptimizerRanges::Make(layout, part).elements(), part.state_elements);
        end = {.first = part.first + part.elements,
               .state_first = part.state_first + part.state_elements};
      }
      EXPECT_EQ(end.first, layout.size());
      EXPECT_EQ(end.state_first, layout.trainable_size());
    }
  }
}

TEST(ShardLayoutTest, FrozenParametersAreExcluded) {
  // Trainable: blocks 0 and 1, and from the end of block 4 on two more.
  const FlatLayout layout = MakeLayout({{2048, false}, {3072, true}, {2048, false}});
  const ShardLayout shards = ShardLayout::Make(layout, 2);
  EXPECT_EQ(shards.parts()[0], (ShardPart{.elements = 2048, .state_elements = 2048}));
  EXPECT_EQ(
      shards.parts()[1],
      (ShardPart{
          .first = 2048, .elements = 3072 + 2048, .state_first = 2048, .state_elements = 2048}));
}

TEST(ShardGridTest, RanksBeyondSmallestNodeOwnNothing) {
  const Nodes nodes = {0, 0, 0, 1, 1};
  FlatLayout layout;
  (void)layout.Add("w", {9000}, {}, /*frozen=*/false);
  for (const auto& [mode, parts] :
       {std::pair(Sharding::kOptimizer, 5), std::pair(Sharding::kNode, 2),
        std::pair(Sharding::kNodeOptimizer, 4)}) {
    const ShardGrid grid = ShardGrid::Make(mode, Nodes{3, 2});
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

}  // namespace
}  // namespace gaccd::tests
