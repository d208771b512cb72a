// A sharded optimiser on GPUs, over the stand-ins of the GPU and of NCCL: memory, bytes sent,
// state and checkpoints that any mode, world and device reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/checkpoint/shard.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/planned_memory.h"
#include "daemon/engine/shard_traffic.h"
#include "daemon/optim/digest.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/random.h"
#include "daemon/tensor/shard_layout.h"
#include "daemon/train/update.h"
#include "tests/ranks/cuda_shard_runs.h"
#include "tests/sanitized.h"
#include "tests/support/resume_fixture.h"

namespace gaccd::tests {
namespace {

constexpr Sharding kAllModes[] = {Sharding::kNone, Sharding::kOptimizer, Sharding::kNode,
                                  Sharding::kNodeOptimizer};

// Once a rank, on new GPUs of these nodes.
Status RunOnNodes(const Nodes& nodes, const std::function<Status(Communicator&)>& body) {
  const auto ranks = static_cast<int>(nodes.size());
  ResetGpus(ranks);
  return RunNcclRanks(ranks, {.group = {.node_of = nodes}},
                      [&](Communicator& nccl, Communicator&) { return body(nccl); });
}

std::vector<float> Values(std::uint64_t seed, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(Mix64(seed + i) >> 40) / 1e6F;
  }
  return values;
}

EngineOptions OptionsOf(const EngineCase& test, Sharding shard, int gpu) {
  return {.replica = {.micro_batches = {1}},
          .optimizer = test.optimizer,
          .shard = shard,
          .numerics = test.numerics,
          .choice = Cuda(gpu)};
}

// Several pieces of state are gathered, and parts begin and end inside of them. Whatever mode and
// world has a state, it is read as it was set: so what one saves, all others continue.
TEST(CudaShardState, IsTheSameInAnyModeOnAnyRanks) {
  const EngineCase test{.widths = {64, 600, 500, 5}, .optimizer = kAveragedAdamW};
  const Model model = ModelOf(test);
  const std::int64_t trainable = model.layout().trainable_size();
  const std::vector<float> parameters = Values(1, model.layout().size());
  const std::vector<float> state = Values(2, StateElements(test.optimizer, trainable));
  std::vector<float> averages = parameters;
  std::ranges::copy(std::span(state).last(averages.size()), averages.begin());
  ASSERT_EQ(trainable, model.layout().size());
  const auto check = [&](Communicator& comm, Sharding shard) -> Status {
    const auto engine = MakeEngine(comm, model, OptionsOf(test, shard, comm.rank()));
    GACCD_RETURN_IF_ERROR(engine.status());
    GACCD_RETURN_IF_ERROR((*engine)->SetParameters(parameters));
    GACCD_RETURN_IF_ERROR((*engine)->SetOptimizer(state, 3));
    // Every rank asks for another range, one for nothing.
    const auto first = static_cast<std::size_t>(comm.rank() * 100);
    std::vector<float> part(comm.rank() == 1 ? 0 : state.size() - 1000);
    GACCD_RETURN_IF_ERROR(
        (*engine)->Read(EngineBuffer::kOptimizer, static_cast<std::int64_t>(first), part));
    EXPECT_TRUE(std::ranges::equal(part, std::span(state).subspan(first, part.size())));
    std::vector<float> found(parameters.size());
    for (const std::vector<float>& expected : {averages, parameters}) {
      GACCD_RETURN_IF_ERROR((*engine)->ExchangeAverages());
      GACCD_RETURN_IF_ERROR((*engine)->GetParameters(found));
      EXPECT_EQ(found, expected);
    }
    GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, (*engine)->Digest());
    EXPECT_EQ(digest, DigestOf(parameters));
    return Status::Ok();
  };
  for (const Nodes& nodes : {Nodes{0, 0, 1}, Nodes{0, 0, 0, 1}, Nodes{0, 1, 0, 1}, Nodes{0}}) {
    if (kSanitized && nodes.size() != 3) continue;
    for (const Sharding mode : kAllModes) {
      SCOPED_TRACE(StrCat(Name(mode), ", ", nodes.size(), " ranks"));
      EXPECT_OK(RunOnNodes(nodes, [&](Communicator& comm) { return check(comm, mode); }));
    }
  }
}

// Whatever the number of micro-steps and messages.
TEST(CudaShardTraffic, BytesAreThoseOfTheFormula) {
  for (const Nodes& nodes : {Nodes{0, 0, 0}, Nodes{0, 0, 1, 1}, Nodes{0, 0, 1}}) {
    const std::vector<int> ranks = RanksOf(nodes);
    EngineCase test{.ranks = static_cast<int>(nodes.size()),
                    .micro = 3,
                    .target = 7 * std::ssize(nodes) - 1,
                    .updates = 3,
                    .widths = kBlocks,
                    .optimizer = kAveragedAdamW,
                    .evaluate = false};
    for (const Sharding mode : kModes) {
      SCOPED_TRACE(StrCat(Name(mode), ", ", nodes.size(), " ranks"));
      if (ShardGrid::Of(mode, ranks).parts() == 1) continue;  // gaps between messages are not sent
      test.shard = mode;
      std::mutex mutex;
      CommTraffic found;
      EXPECT_OK(RunOnNodes(nodes, [&](Communicator& comm) -> Status {
        CommTraffic before;
        CommTraffic after;
        EngineChoice choice = Cuda(comm.rank());
        choice.bucket_elements = 1;
        GACCD_RETURN_IF_ERROR(RunEngine(comm, test, choice,
                                        {.before_updates = [&] { before = comm.traffic(); },
                                         .after_updates = [&] { after = comm.traffic(); }})
                                  .status());
        const std::lock_guard lock(mutex);
        found.sent += after.sent - before.sent;
        found.between_nodes += after.between_nodes - before.between_nodes;
        return Status::Ok();
      }));
      CommTraffic update = TrafficOfUpdate(mode, ModelOf(test).layout(), ranks);
      update += TrafficOfSum(
          static_cast<std::int64_t>(sizeof(UpdateSums) + test.control_words * sizeof(double)),
          ranks);
      EXPECT_EQ(found.sent, test.updates * update.sent);
      EXPECT_EQ(found.between_nodes, test.updates * update.between_nodes);
    }
  }
}

const EngineCase kWide{.name = "wide",
                       .ranks = 3,
                       .micro = 2,
                       .target = 6,
                       .updates = 1,
                       .widths = {64, 1200, 1000, 5},
                       .optimizer = kAveragedAdamW,
                       .evaluate = false};

TEST(CudaShardMemory, ARankHasTheStateOfItsPart) {
  const Model model = ModelOf(kWide);
  const auto& layout = model.layout();
  for (const Nodes& nodes : {Nodes{0, 0, 0}, Nodes{0, 0, 1}}) {
    EXPECT_OK(RunOnNodes(nodes, [&](Communicator& comm) -> Status {
      std::int64_t whole = 0;
      for (const Sharding mode : kAllModes) {
        const EngineOptions options = OptionsOf(kWide, mode, comm.rank());
        const int parts = ShardGrid::Of(mode, RanksOf(nodes)).parts();
        GACCD_ASSIGN_OR_RETURN(const auto engine, MakeEngine(comm, model, options));
        const std::int64_t planned = engine->memory().device_bytes;
        if (mode == Sharding::kNone) whole = planned;
        // Three values a parameter that is another's. In their place: a piece of 1 MiB, a table.
        const ShardLayout shards = ShardLayout::Make(layout, parts);
        const auto saved_with = [&](std::int64_t own) { return 12 * (layout.size() - own); };
        constexpr std::int64_t kMore = (1 << 20) + 40'000;
        if (parts > 1) {
          EXPECT_GE(whole - planned, saved_with(shards.most_state_elements()) - kMore);
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
TEST(CudaShardMemory, WhatDoesNotFitWholeFitsInParts) {
  const Model model = ModelOf(kWide);
  std::int64_t whole = 0;
  EXPECT_OK(RunOnNodes({0, 0, 0}, [&](Communicator& comm) -> Status {
    GACCD_ASSIGN_OR_RETURN(const auto engine,
                           MakeEngine(comm, model, OptionsOf(kWide, Sharding::kNone, comm.rank())));
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
TEST(CudaShardFailure, ARankThatCannotDivideEndsAll) {
  const EngineCase test{.widths = kBlocks, .optimizer = kAveragedAdamW};
  const Model model = ModelOf(test);
  EXPECT_OK(RunOnNodes({0, 0, 1, 1}, [&](Communicator& comm) -> Status {
    if (comm.rank() == 0) standin::FailNccl("ncclCommInitRankConfig", 1, ncclInternalError);
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    const EngineOptions options = OptionsOf(test, Sharding::kNode, comm.rank());
    EXPECT_THAT(MakeEngine(comm, model, options), HasKind(ErrorKind::kUnavailable));
    return comm.Barrier();
  }));
  EXPECT_EQ(standin::LiveNcclComms(), 0);
}

// Trainings: what GPUs have saved in one mode others continue in another, and CPUs, too.
class CudaShardResumeTest : public ResumeTest {
 protected:
  Status RunRanks(int ranks, const RankBody& body) override {
    if (on_cpus_) return ResumeTest::RunRanks(ranks, body);
    ResetGpus(ranks);
    return RunNcclRanks(ranks, {}, [&](Communicator& nccl, Communicator& over) {
      return body(over, Cuda(over.rank()), &nccl);
    });
  }
  static Job JobOf(Sharding shard, Precision precision) {
    Job job = SmallJob();
    job.model.layer = {{"fc1", LinearSpec{10, 96, true}},
                       {"norm", BatchNormSpec{96}},
                       {"relu1", ReluSpec{}},
                       {"fc2", LinearSpec{96, 50, true}},
                       {"relu2", ReluSpec{}},
                       {"fc3", LinearSpec{50, 2, true}}};
    job.optimizer.group = {{.match = "fc1.weight", .freeze = true}};
    job.optimizer.ema = EmaSpec{0.75};
    job.clip_norm = 0.1;
    job.max_updates = 11;
    job.precision = precision;
    job.loss_scale = {.init_scale = 1024, .growth_interval = 4};  // of fp16
    job.shard = shard;
    return job;
  }

  bool on_cpus_ = false;
};

TEST_F(CudaShardResumeTest, CheckpointsAreThoseOfAnUnshardedRun) {
  for (const Precision precision : {Precision::kF32, Precision::kFP16}) {
    const auto job = [&](Sharding shard) { return JobOf(shard, precision); };
    std::filesystem::remove_all(ckpt());
    const auto plain = ValueOrThrow(Train(job(Sharding::kNone), 3, 4, "never"));
    const std::string unsharded = StrCat(folder_, "/unsharded-", Name(precision));
    std::filesystem::rename(ckpt(), unsharded);
    const auto sharded = ValueOrThrow(Train(job(Sharding::kOptimizer), 3, 4, "never"));
    EXPECT_EQ(sharded.weights, plain.weights);
    EXPECT_EQ(sharded.averaged, plain.averaged);
    EXPECT_EQ(sharded.evals, plain.evals);
    EXPECT_EQ(sharded.steps, plain.steps);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string name = StrCat("/", ShardName(rank, 3));
      const std::string there = PathOf(4).substr(ckpt().size()) + name;
      EXPECT_EQ(ValueOrThrow(ReadStart(ckpt() + there, 1 << 20)),
                ValueOrThrow(ReadStart(unsharded + there, 1 << 20)));
    }
    // Either continues the other's, on other ranks, too.
    const std::string other = unsharded + PathOf(4).substr(ckpt().size());
    for (const int ranks : {2, 3}) {
      const auto expected = ValueOrThrow(Train(job(Sharding::kNone), ranks, 0, PathOf(4)));
      const auto resumed = ValueOrThrow(Train(job(Sharding::kNode), ranks, 0, other));
      EXPECT_EQ(resumed.first, 4);
      EXPECT_EQ(resumed.weights, expected.weights);
      EXPECT_EQ(resumed.averaged, expected.averaged);
    }
  }
}

TEST_F(CudaShardResumeTest, InsideAnUpdateTheSameMicroStepsGoOn) {
  const auto job = [&](Sharding shard) { return JobOf(shard, Precision::kF32); };
  Job plain_job = job(Sharding::kNone);
  std::erase_if(plain_job.model.layer, [](const auto& layer) { return layer.name == "norm"; });
  const auto with = [&](Sharding shard) {
    Job sharded = plain_job;
    sharded.shard = shard;
    return sharded;
  };
  const auto plain = ValueOrThrow(Train(plain_job, 2, 0, "never"));
  ASSERT_THAT(Train(with(Sharding::kOptimizer), 2, 100, "never", {.update = 4, .done = 2}),
              HasKind(ErrorKind::kTempFail));
  for (const Sharding shard : {Sharding::kNone, Sharding::kNodeOptimizer}) {
    const auto resumed = ValueOrThrow(Train(with(shard), 2, 0, "auto"));
    EXPECT_EQ(resumed.first, 3);
    EXPECT_EQ(resumed.weights, plain.weights);
    EXPECT_EQ(resumed.averaged, plain.averaged);
  }
}

TEST_F(CudaShardResumeTest, CpusContinueWhatGpusSavedAndBack) {
  for (const bool saved_on_cpus : {false, true}) {
    SCOPED_TRACE(saved_on_cpus);
    std::filesystem::remove_all(ckpt());
    on_cpus_ = saved_on_cpus;
    const auto saved =
        ValueOrThrow(Train(JobOf(Sharding::kOptimizer, Precision::kF32), 3, 4, "never"));
    on_cpus_ = !saved_on_cpus;
    const auto whole =
        ValueOrThrow(Train(JobOf(Sharding::kNone, Precision::kF32), 2, 0, PathOf(4)));
    const auto resumed =
        ValueOrThrow(Train(JobOf(Sharding::kNode, Precision::kF32), 2, 0, PathOf(4)));
    EXPECT_EQ(resumed.first, 4);
    EXPECT_EQ(resumed.weights, whole.weights);
    EXPECT_EQ(resumed.averaged, whole.averaged);
    EXPECT_LT(Distance(resumed.weights, saved.weights), 1e-3);
  }
}

}  // namespace
}  // namespace gaccd::tests
