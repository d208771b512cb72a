// A sharded optimiser on GPUs alone, over the stand-ins of the GPU and of NCCL: every case that
// engines on GPUs have elsewhere, ranks that share a GPU, a host that does not wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/comm/forwarding_communicator.h"
#include "collectives/comm/threads.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/engine/shard_cuda.h"
#include "daemon/train/update.h"
#include "tests/standin/standin.h"
#include "tests/support/engine_cuda_cases.h"
#include "tests/support/shard_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// All that engines on GPUs are tested with elsewhere, on two nodes, each gradient a message of its
// own; with more parameters, so that every rank owns some.
std::vector<EngineCase> AllShardCases() {
  std::vector<EngineCase> cases = MakeCudaCases(3);
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

TEST_P(CudaShardCases, AreBitIdenticalToUnsharded) {
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

TEST(CudaShard, SharingOneGpu) {
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

// Biases so low that no unit is active, and one of them steps to -inf: neither loss nor gradient
// shows it, and only the owner of its part has seen it.
TEST(CudaShard, NonFiniteParameterIsReportedOnAllRanks) {
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
  const FlatEntry bias = *MakeCaseModel(test).layout().Find("fc1.bias");
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

TEST(CudaShard, HostsDoNotWaitInsideUpdate) {
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

// Rank 1 takes part in every split, and then has no result.
class FailingSplit final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override {
    auto made = ForwardingCommunicator::Split(color, key);
    if (rank() == 1) return Status(ErrorKind::kUnavailable, "no memory for a communicator");
    return made;
  }
};

TEST(CudaShard, OneRankWithoutCommunicatorsFailsAll) {
  FlatLayout layout;
  ASSERT_TRUE(layout.Add("weight", {1000}).ok());
  ExpectOk(RunThreadRanks(4, {.node_of = {0, 0, 1, 1}}, [&](Communicator& comm) {
    FailingSplit failing(comm);
    DeviceWaiter waiter(failing);
    EXPECT_THAT(CudaShards::Make(failing, layout, {.mode = Sharding::kNodeOptimizer}, waiter),
                IsError(ErrorKind::kUnavailable, "rank 1 on ", "no memory"));
    return Status::Ok();
  }));
}

}  // namespace
}  // namespace gaccd::tests
