// A rank that hangs or fails among GPUs with a sharded optimiser. By itself: where time is short
// for the end of its streams, an engine leaves its memory to the end of the process, which the next
// test would find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "daemon/engine/update_program.h"
#include "daemon/train/update.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/support/shard_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

using testing::HasSubstr;

// Rank 2 of the world is rank 0 of its node.
TEST(CudaShardFailure, NamesHangingRank) {
  static constexpr std::chrono::milliseconds kShardBound{3'000};
  const auto hang = [](int rank) -> EngineRunOptions {
    if (rank != 2) return {};
    auto updates = std::make_shared<int>(0);
    return {.update = [updates](Engine& engine, Prefetcher& batches, const Plan& plan,
                                const UpdateSettings& settings) -> Status {
      if (++*updates == 3) {
        std::this_thread::sleep_for(kShardBound);
        return {ErrorKind::kUnavailable, "this rank hung"};
      }
      return RunUpdate(engine, batches, PlainAccumulation(plan), settings);
    }};
  };
  EngineCase test{.ranks = 4,
                  .micro = 5,
                  .target = 40,
                  .updates = 20,
                  .widths = kBlocks,
                  .shard = Sharding::kNodeOptimizer};
  ResetGpus(4);
  const auto outcomes =
      RunCudaRanks(test, {.bound = kShardBound, .node_of = {0, 0, 1, 1}, .options = hang});
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.run, HasKind(ErrorKind::kUnavailable));
  }
  EXPECT_THAT(outcomes[3].run, HasMessage(HasSubstr("the communicator of ranks 2, 3 (renumbered "
                                                    "from 0 below): ")));
  EXPECT_THAT(outcomes[3].run, HasMessage(HasSubstr("rank 0 on node1 did not enter")));
  EXPECT_EQ(standin::LiveNcclComms(), 0);
  for (const int device : {-1, 0, 1, 2, 3}) EXPECT_EQ(standin::LiveBytes(device), 0) << device;
}

// The shards' communicators are parts of that of a stage, which is given up when a stage fails.
TEST(CudaShardFailure, FailingGpuOfAStageReleasesEverything) {
  EngineCase test{.ranks = 2,
                  .micro = 4,
                  .target = 4,
                  .updates = 3,
                  .widths = {12, 20, 24, 16, 5},
                  .shard = Sharding::kNodeOptimizer,
                  .stages = 3,
                  .schedule = PipelineSchedule::kZeroBubble};
  const auto fail = [&test](int rank) -> EngineRunOptions {
    if (rank != 3) return {};
    return {.update = [&test, first = true](Engine& engine, Prefetcher& batches, const Plan& plan,
                                            const UpdateSettings& settings) mutable -> Status {
      if (std::exchange(first, false)) standin::FailKernel(37, cudaErrorIllegalAddress);
      const UpdateProgram program =
          PipelineStageProgram(plan, test.schedule, test.stages, /*stage=*/0);
      return RunUpdate(engine, batches, program, settings);
    }};
  };
  ResetGpus(6);
  const auto outcomes = RunCudaRanks(
      test,
      {.bound = std::chrono::milliseconds{4'000}, .node_of = {0, 0, 0, 1, 1, 1}, .options = fail});
  for (const RankOutcome& outcome : outcomes) EXPECT_FALSE(outcome.run.ok());
  EXPECT_EQ(standin::LiveNcclComms(), 0);
  for (int device = -1; device < 6; ++device) EXPECT_EQ(standin::LiveBytes(device), 0) << device;
}

}  // namespace
}  // namespace gaccd::tests
