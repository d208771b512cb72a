// Pipelines of engines on GPUs alone, over the stand-ins of the GPU and of NCCL: streams that run
// at other speeds, a GPU that all share, memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "daemon/engine/planned_memory.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/support/pipeline_runs.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

class CudaPipelineTest : public ::testing::TestWithParam<PipelineShape> {};
INSTANTIATE_TEST_SUITE_P(All, CudaPipelineTest, ::testing::ValuesIn(AllPipelineShapes()),
                         [](const auto& test) { return PipelineName(test.param); });

// The streams of a rank run at other speeds; the host runs ahead by an update.
TEST_P(CudaPipelineTest, WithDelaysAndUpdatesInFlight) {
  const PipelineShape& shape = GetParam();
  if (shape.precision != Precision::kF32) return;  // the streams are the same
  EngineRanks ranks;
  ranks.options = [](int /*rank*/) {  // once the machine is new
    standin::SetDelays(1, 50);
    return EngineRunOptions{};
  };
  ExpectWhole({.name = "delays",
               .ranks = shape.pipelines,
               .micro = 2,
               .target = 18 * shape.pipelines - 1,
               .updates = 3,
               .numerics = {.precision = shape.precision}},
              shape.stages, shape.schedule, 1e-6, ranks);
  standin::SetDelays(0, 0);
}

// The host waits in a launch while a stream has too much work: with GPIPE in the forwards of the
// stage before the last one, whose own forwards wait for room for gradients, and so for receives.
TEST(CudaPipelines, HostMayWaitInLaunches) {
  standin::SetMaxPending(8);
  const EngineCase test{.name = "launches", .ranks = 1, .micro = 1, .target = 24, .updates = 2};
  for (const PipelineSchedule schedule : kSchedules) {
    for (const int stages : {2, 3}) ExpectWhole(test, stages, schedule, 1e-6, WithGradients());
  }
  standin::SetMaxPending(standin::kMaxPending);
}

TEST(CudaPipelines, SharingOneGpu) {
  EngineCase test{.name = "shared", .ranks = 1, .micro = 2, .target = 19, .updates = 3};
  EngineRanks ranks = WithGradients();
  ranks.one_gpu = true;
  for (const PipelineSchedule schedule : kSchedules) ExpectWhole(test, 2, schedule, 1e-6, ranks);
}

// Each rank tells others; all of them are counted once.
TEST(CudaPipelines, ControlWordsCoverAllRanks) {
  const EngineCase test =
      InStages({.name = "words", .ranks = 2, .micro = 4, .target = 15, .updates = 3}, 2,
               PipelineSchedule::kOneFOneB);
  const auto on_cpus = RunCpuRanks(test);
  const auto found = RunTestedRanks(test);
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    ASSERT_TRUE(on_cpus[rank].ok());
    EXPECT_EQ(found[rank].control_words, on_cpus[rank]->control_words);
  }
}

// Only the second pipeline has the sample with the NaN: all ranks stop at the same update.
TEST(CudaPipelines, NonFiniteValueStopsAllStages) {
  const EngineCase test{
      .name = "nan", .ranks = 2, .micro = 5, .target = 33, .updates = 6, .poisoned = 50};
  std::mutex mutex;
  std::vector<std::int64_t> updates;
  const EngineRunOptions options{
      .failed = [&](const Status&, std::span<const float>, std::int64_t done) {
        const std::lock_guard lock(mutex);
        updates.push_back(done);
      }};
  const EngineRanks ranks{.options = [&](int) { return options; }};
  for (const auto& run : RunCpuRanks(test, ranks)) EXPECT_FALSE(run.ok());
  ASSERT_EQ(updates.size(), 2U);
  const EngineCase staged = InStages(test, 2, PipelineSchedule::kOneFOneB);
  for (const auto& run : TryTestedRanks(staged, ranks)) {
    EXPECT_THAT(run, HasKind(ErrorKind::kNoRequeue));
  }
  ASSERT_EQ(updates.size(), 6U);
  for (const std::int64_t done : updates) EXPECT_EQ(done, updates[0]);
}

// The others would make further communicators with ranks that have given up.
TEST(CudaPipelines, CommunicatorThatCannotBeMadeEndsAllRanks) {
  // Its rank 2 fails: of 3 stages that of a pipeline, of 3 pipelines that of a stage.
  for (const int stages : {3, 2}) {
    SCOPED_TRACE(stages);
    const EngineCase test =
        InStages({.name = "split", .ranks = 6 / stages, .micro = 2, .target = 12, .updates = 1},
                 stages, PipelineSchedule::kOneFOneB);
    ExpectOk(RunOnGpus(6, [&](Communicator& over, const EngineChoice& choice, Communicator* nccl) {
      if (over.rank() == 0) standin::FailNccl("ncclCommInitRankConfig", 2, ncclInternalError);
      GACCD_RETURN_IF_ERROR(over.Barrier());
      EngineOptions options{.optimizer = test.optimizer, .choice = choice};
      options.replica.micro_batches = {2};
      options.replica.micro_steps_per_update = 2;
      options.replica.in_flight = 2;
      const Model model = MakeCaseModel(test, over.rank());
      EXPECT_THAT(MakeEngine(*nccl, model, options),
                  IsError(ErrorKind::kUnavailable, "ncclCommInitRank"));
      return over.Barrier();
    }));
    EXPECT_EQ(standin::LiveNcclComms(), 0);
  }
}

// Of the flat buffers the own part alone, and what is planned: by another engine, by the graphs.
TEST(CudaPipelines, EachGpuHoldsOneStage) {
  EngineCase test{.name = "memory", .micro = 8, .target = 32, .updates = 1};
  test.widths = {64, 512, 512, 512, 5};
  test = InStages(test, 2, PipelineSchedule::kGpipe);
  const EngineCase unstaged = InStages(test, 1, PipelineSchedule::kGpipe);
  const auto options = [&](std::int64_t micro_batch, const EngineChoice& choice) {
    EngineOptions all{.optimizer = test.optimizer, .choice = choice};
    all.replica.micro_batches = {micro_batch};
    all.replica.eval_batches = {micro_batch};
    all.replica.micro_steps_per_update = 4;
    all.replica.in_flight = 4;
    return all;
  };
  const std::int64_t whole = MakeCaseModel(unstaged).layout().size();
  ExpectOk(RunOnGpus(2, [&](Communicator& over, const EngineChoice& choice, Communicator* nccl) {
    const Model model = MakeCaseModel(test, over.rank());
    const EngineOptions wanted = options(32, choice);
    GACCD_ASSIGN_OR_RETURN(const auto other, MakeEngine(*nccl, model, options(2, choice)));
    GACCD_ASSIGN_OR_RETURN(const EngineMemory by_other, other->PlanMemory(wanted.replica));
    const std::int64_t live = standin::LiveBytes(over.rank());
    EXPECT_NEAR(static_cast<double>(live) / static_cast<double>(other->memory().device_bytes), 1,
                0.002);
    GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(*nccl, model, wanted));
    const std::int64_t planned = engine->memory().device_bytes;
    EXPECT_EQ(by_other.device_bytes, planned);
    GACCD_ASSIGN_OR_RETURN(const EngineMemory by_graphs, PlanEngineMemory(model, wanted));
    EXPECT_LT(by_graphs.device_bytes, planned);
    EXPECT_GT(by_graphs.device_bytes, planned - (std::int64_t{64} << 20));
    EXPECT_EQ(by_graphs.kept_bytes, engine->memory().kept_bytes);
    // Parameters, gradients and momentum, which are the most of it, of about half of the model.
    EXPECT_LT(by_graphs.device_bytes, std::int64_t{4} * 3 * whole * 3 / 4);
    return Status::Ok();
  }));
}

}  // namespace
}  // namespace gaccd::tests
