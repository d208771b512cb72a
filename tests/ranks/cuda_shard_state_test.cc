// A sharded optimiser on GPUs alone, over the stand-ins of the GPU and of NCCL: memory, and
// checkpoints of CPUs and GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/planned_memory.h"
#include "daemon/tensor/shard_layout.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/support/shard_resume_fixture.h"
#include "tests/support/shard_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// Once a rank, on new GPUs of these nodes.
Status RunOnNodes(const Nodes& nodes, const std::function<Status(Communicator&)>& body) {
  return OnTestedRanks(
      nodes, [&](Communicator&, const EngineChoice&, Communicator* nccl) { return body(*nccl); });
}

const EngineCase kWide{.name = "wide",
                       .ranks = 3,
                       .micro = 2,
                       .target = 6,
                       .updates = 1,
                       .widths = {64, 1200, 1000, 5},
                       .optimizer = kAveragedAdamW,
                       .evaluate = false};

TEST(CudaShardMemory, RankHoldsStateOfItsPart) {
  const Model model = MakeCaseModel(kWide);
  const auto& layout = model.layout();
  for (const Nodes& nodes : {Nodes{0, 0, 0}, Nodes{0, 0, 1}}) {
    EXPECT_OK(RunOnNodes(nodes, [&](Communicator& comm) -> Status {
      std::int64_t whole = 0;
      for (const Sharding mode : kAllModes) {
        const EngineOptions options = MakeEngineOptions(kWide, mode, Cuda(comm.rank()));
        const int parts = ShardGrid::Make(mode, CountRanksPerNode(nodes)).parts();
        GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, model, options));
        const std::int64_t planned = engine->memory().device_bytes;
        if (mode == Sharding::kNone) whole = planned;
        // Three values a parameter that is another's. In their place: a piece of 1 MiB, a table.
        const ShardLayout shards = ShardLayout::Make(layout, parts);
        const auto saved_with = [&](std::int64_t own) { return 12 * (layout.size() - own); };
        constexpr std::int64_t kMore = (1 << 20) + 40'000;
        if (parts > 1) {
          EXPECT_GE(whole - planned, saved_with(shards.max_state_elements()) - kMore);
          if (comm.rank() == 0) {
            EXPECT_LE(whole - planned, saved_with(shards.parts()[0].state_elements)) << Name(mode);
          }
        }
        GACCD_RETURN_IF_ERROR(comm.Barrier());
        EXPECT_NEAR(
            static_cast<double>(standin::LiveBytes(comm.rank())) / static_cast<double>(planned), 1,
            0.01);
        GACCD_RETURN_IF_ERROR(comm.Barrier());
        GACCD_ASSIGN_OR_RETURN(const EngineMemory by_graphs,
                               PlanEngineMemory(model, options, parts));
        EXPECT_NEAR(static_cast<double>(by_graphs.device_bytes), static_cast<double>(planned),
                    static_cast<double>(CudaContext::kWorkspaceBytes) + (4 << 20));
      }
      return Status::Ok();
    }));
  }
}

// On GPUs that have no room for all of the state.
TEST(CudaShardMemory, ShardedModelFitsWhereWholeDoesNot) {
  const Model model = MakeCaseModel(kWide);
  std::int64_t whole = 0;
  EXPECT_OK(RunOnNodes({0, 0, 0}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(
        const auto engine,
        MakeEngine(comm, model, MakeEngineOptions(kWide, Sharding::kNone, Cuda(comm.rank()))));
    if (comm.rank() == 0) whole = engine->memory().device_bytes;
    return Status::Ok();
  }));
  const std::int64_t half_of_state = 6 * model.layout().size();
  for (const Sharding mode : {Sharding::kNone, Sharding::kOptimizer}) {
    standin::ResetNccl();
    standin::Reset({.devices = 3,
                    .memory_bytes = static_cast<std::size_t>(whole - half_of_state +
                                                             DeviceMemory::kReserveBytes)});
    EngineCase test = kWide;
    test.shard = mode;
    for (const RankOutcome& outcome : RunCudaRanks(test)) {
      if (mode == Sharding::kNone) {
        EXPECT_THAT(outcome.run, IsError(ErrorKind::kConfig, "does not fit on the GPU"));
      } else {
        EXPECT_OK(outcome.run);
      }
    }
  }
  ResetGpus(1);
}

// One of the two nodes cannot set up its communicator.
TEST(CudaShardFailure, RankThatCannotDivideEndsAllRanks) {
  const EngineCase test{.widths = kBlocks, .optimizer = kAveragedAdamW};
  const Model model = MakeCaseModel(test);
  EXPECT_OK(RunOnNodes({0, 0, 1, 1}, [&](Communicator& comm) -> Status {
    if (comm.rank() == 0) standin::FailNccl("ncclCommInitRankConfig", 1, ncclInternalError);
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    const EngineOptions options = MakeEngineOptions(test, Sharding::kNode, Cuda(comm.rank()));
    EXPECT_THAT(MakeEngine(comm, model, options), HasKind(ErrorKind::kUnavailable));
    return comm.Barrier();
  }));
  EXPECT_EQ(standin::LiveNcclComms(), 0);
}

// Trainings: what CPUs have saved GPUs continue, and back.
TEST_F(ShardResumeTest, CpusAndGpusResumeEachOther) {
  for (const bool saved_on_cpus : {false, true}) {
    SCOPED_TRACE(saved_on_cpus);
    std::filesystem::remove_all(ckpt());
    on_cpus_ = saved_on_cpus;
    const auto saved = ValueOrThrow(Train(Normalized(Sharding::kOptimizer), 3, 4, "never"));
    on_cpus_ = !saved_on_cpus;
    const auto whole = ValueOrThrow(Train(Normalized(Sharding::kNone), 2, 0, CheckpointPath(4)));
    const auto resumed = ValueOrThrow(Train(Normalized(Sharding::kNode), 2, 0, CheckpointPath(4)));
    EXPECT_EQ(resumed.first, 4);
    EXPECT_EQ(resumed.weights, whole.weights);
    EXPECT_EQ(resumed.averaged, whole.averaged);
    EXPECT_LT(Distance(resumed.weights, saved.weights), 1e-3);
  }
}

}  // namespace
}  // namespace gaccd::tests
