// --micro-batch=auto: what it plans is what an engine takes, and all ranks choose the same.
#include "daemon/train/memory_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/engine/planned_memory.h"
#include "tests/support/small_regression.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// A job with all that PlannedTraining looks at.
struct JobForMemory {
  JobForMemory(Job of, const Plan& plan)
      : job(std::move(of)),
        data(ValueOrThrow(OpenTrainingData(job, {}))),
        schedule(ValueOrThrow(MakeUpdateSchedule(job, plan, data.train->size()))),
        model(ValueOrThrow(Model::Make(job.model, MakeBatchSpec(job, *data.train)))) {}

  [[nodiscard]] PlannedTraining Training() const {
    return {.job = job, .model = model, .data = data, .schedule = schedule, .saves = true};
  }
  [[nodiscard]] EngineOptions Options(const ReplicaOptions& sizes = {}) const {
    return {.replica = sizes,
            .optimizer = job.optimizer,
            .numerics = GetNumerics(job),
            .choice = {.device = Device::kCpu}};
  }
  [[nodiscard]] std::int64_t Bytes(const Plan& plan, int rank) const {
    const auto plan_engine = [this](const ReplicaOptions& sizes) {
      return PlanEngineMemory(model, Options(sizes));
    };
    return ValueOrThrow(PlanRankMemory(Training(), plan, rank, plan_engine)).host_bytes;
  }

  Job job;
  TrainingData data;
  UpdateSchedule schedule;
  Model model;
};

std::int64_t Draw(std::mt19937& random, std::int64_t most) {
  return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most));
}

Job RandomJob(std::mt19937& random) {
  const std::int64_t features = Draw(random, 40);
  const std::int64_t width = Draw(random, 200);
  Job job = tests::SmallRegression();
  job.model.layer = {{"fc1", LinearSpec{features, width, true}}};
  if (random() % 3 == 0) job.model.layer.push_back({"bn", BatchNormSpec{.num_features = width}});
  job.model.layer.push_back({"relu", ReluSpec{}});
  job.model.layer.push_back({"fc2", LinearSpec{width, 2, true}});
  job.data.train = SyntheticSpec{
      .samples = 100 + Draw(random, 900), .features = features, .outputs = 2, .seed = 3};
  job.data.eval.reset();
  if (random() % 2 == 0) {
    job.data.eval =
        SyntheticSpec{.samples = Draw(random, 300), .features = features, .outputs = 2, .seed = 3};
  }
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{.momentum = 0.9}};
  if (random() % 2 == 0) job.optimizer.kind = AdamWSpec{};
  job.batch.target = 2 + Draw(random, 98);
  return job;
}

// What the engine of this plan takes once it is made.
std::int64_t BytesOfEngine(const JobForMemory& job, const Plan& plan, int rank) {
  const auto comm = MakeSingle();
  const auto sizes = ValueOrThrow(EngineSizes(job.Training(), plan, rank));
  return ValueOrThrow(MakeEngine(*comm, job.model, job.Options(sizes)))->memory().host_bytes;
}

// Of 100 random jobs and limits: what is chosen fits, the engine that is made then takes what was
// planned, and the next larger micro-batch would not fit.
TEST(MemoryChoice, NeverFailsForRandomJobsAndLimits) {
  std::mt19937 random(11);
  int bound = 0;
  for (int i = 0; i < 100; ++i) {
    const Job drawn = RandomJob(random);
    PlanRequest request{.gpus_per_node = Draw(random, 5), .target_batch = *drawn.batch.target};
    if (i % 5 == 0) request.speeds.assign(static_cast<std::size_t>(request.gpus_per_node), 0.5);
    if (i % 5 == 0) request.speeds.front() = 1;
    if (i % 3 == 0) request.recompute = Recompute::kBlocks;
    const Plan whole = ValueOrThrow(InOneMicroStep(request));
    const JobForMemory job(drawn, whole);
    const auto rank = static_cast<int>(Draw(random, whole.world()) - 1);
    PlanRequest one = request;
    one.micro_batch = 1;
    const std::int64_t least = job.Bytes(ValueOrThrow(Plan::Make(one)), rank);
    const std::int64_t most = job.Bytes(whole, rank);
    const double share = static_cast<double>(Draw(random, 120) - 10) / 100;
    const auto limit = least + static_cast<std::int64_t>(share * static_cast<double>(most - least));
    const auto find = [&](const Plan& plan) -> Result<MemoryNeed> {
      return MemoryNeed{job.Bytes(plan, rank), limit};
    };
    const MicroBatchChoice choice = ValueOrThrow(ChooseMicroBatch(request, {}, find));
    if (!choice.fits) {
      ASSERT_GT(std::min(least, most), limit) << i;
      continue;
    }
    const Plan& plan = choice.plan();
    const auto sizes = ValueOrThrow(EngineSizes(job.Training(), plan, rank));
    EXPECT_EQ(BytesOfEngine(job, plan, rank),
              ValueOrThrow(PlanEngineMemory(job.model, job.Options(sizes))).host_bytes)
        << i;
    EXPECT_LE(job.Bytes(plan, rank), limit) << i;
    if (plan.accum_steps() == 1) continue;
    ++bound;
    PlanRequest larger = plan.request();
    larger.micro_batch = (plan.ranks_hi_samples() - 1) / (plan.accum_steps() - 1) + 1;
    EXPECT_GT(job.Bytes(ValueOrThrow(Plan::Make(larger)), rank), limit) << i;
  }
  EXPECT_GE(bound, 20);  // the limit decided
}

// The activations of all micro-batches are kept where a batch norm needs the whole update: smaller
// ones save little.
TEST(MemoryChoice, CountsKeptMicroBatches) {
  Job job = tests::SmallRegression();
  job.batch.target = 64;
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
  const auto bytes = [&](std::int64_t micro_batch) {
    const PlanRequest request{.gpus_per_node = 1, .micro_batch = micro_batch, .target_batch = 64};
    const Plan plan = ValueOrThrow(Plan::Make(request));
    return JobForMemory(job, plan).Bytes(plan, 0);
  };
  job.data.eval.reset();
  job.model.layer[0].kind = LinearSpec{10, 2000, true};
  job.model.layer[2].kind = LinearSpec{2000, 2, true};
  const std::int64_t plain = bytes(64) - bytes(8);
  job.model.layer.insert(job.model.layer.begin() + 1, {"bn", BatchNormSpec{.num_features = 2000}});
  EXPECT_GT(plain, 300'000);
  EXPECT_LT(bytes(64) - bytes(8), plain / 4);
}

// Of a deep list of layers, without it one sample needs a byte more than there is.
TEST(MemoryChoice, RecomputesIfNothingElseFits) {
  Job job = tests::SmallRegression();
  job.model.layer = {{"in", LinearSpec{10, 3000, true}}};
  for (int i = 0; i < 20; ++i) {
    job.model.layer.push_back({StrCat("norm", i), LayerNormSpec{.width = 3000}});
    job.model.layer.push_back({StrCat("gelu", i), GeluSpec{}});
  }
  job.model.layer.push_back({"out", LinearSpec{3000, 2, true}});
  job.data.eval.reset();
  job.batch.target = 20;
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
  PlanRequest request{.gpus_per_node = 1, .micro_batch = 1, .target_batch = 20};
  const Plan one = ValueOrThrow(Plan::Make(request));
  const JobForMemory of(job, one);
  const auto choose = [&](std::int64_t limit) {
    const auto find = [&](const Plan& plan) -> Result<MemoryNeed> {
      return MemoryNeed{of.Bytes(plan, 0), limit};
    };
    const UpdateCost cost{
        .flops_per_sample = 6e9, .recomputed_flops_per_sample = 2e9, .parameters = 1'000'000};
    const MicroBatchSearch search{.recompute = true, .cost = cost};
    return ValueOrThrow(ChooseMicroBatch(request, search, find));
  };
  const std::int64_t least = of.Bytes(one, 0);
  EXPECT_EQ(choose(least).plan().request().recompute, Recompute::kNone);
  const MicroBatchChoice choice = choose(least - 1);
  ASSERT_TRUE(choice.fits);
  EXPECT_EQ(choice.plan().request().recompute, Recompute::kBlocks);
  EXPECT_GT(choice.plan().request().micro_batch, 1);
  const auto sizes = ValueOrThrow(EngineSizes(of.Training(), choice.plan(), 0));
  EXPECT_EQ(BytesOfEngine(of, choice.plan(), 0),
            ValueOrThrow(PlanEngineMemory(of.model, of.Options(sizes))).host_bytes);
}

// By rank, in MB, of micro-batches of `samples`: 10 and 1 for each sample.
MemoryNeed ComputeNeed(const Plan& plan, int rank, const std::vector<std::int64_t>& limits) {
  return {10 + plan.request().micro_batch, limits[static_cast<std::size_t>(rank)]};
}

struct OnRanks {
  std::vector<Status> status;
  std::vector<std::int64_t> micro_batch;
};

OnRanks ChooseWithLimits(const std::vector<std::int64_t>& limits, int failing = -1) {
  const auto ranks = static_cast<int>(limits.size());
  OnRanks found{std::vector<Status>(limits.size()), std::vector<std::int64_t>(limits.size())};
  ExpectOk(RunThreadRanks(ranks, {}, [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto find = [&](const Plan& plan) -> Result<MemoryNeed> {
      if (comm.rank() == failing && plan.request().micro_batch == 1) {
        return Status(ErrorKind::kConfig, "no kernel");
      }
      return ComputeNeed(plan, comm.rank(), limits);
    };
    const auto choice =
        ChooseOnRanks(comm, {.gpus_per_node = ranks, .target_batch = 20 * ranks}, {}, find);
    found.status[rank] = choice.status();
    if (choice.ok()) found.micro_batch[rank] = choice->plan().request().micro_batch;
    return Status::Ok();
  }));
  return found;
}

TEST(MemoryChoice, RanksWithDifferentLimitsAgree) {
  EXPECT_THAT(ChooseWithLimits({100, 17}).micro_batch, ::testing::ElementsAre(7, 7));
  EXPECT_THAT(ChooseWithLimits({17, 100}).micro_batch, ::testing::ElementsAre(7, 7));
  EXPECT_THAT(ChooseWithLimits({100, 25, 40}).micro_batch, ::testing::ElementsAre(10, 10, 10));
  EXPECT_THAT(ChooseWithLimits({100, 30}).micro_batch, ::testing::ElementsAre(20, 20));
}

TEST(MemoryChoice, AllRanksNameRankWithoutMemory) {
  for (const Status& status : ChooseWithLimits({100, 9, 50}).status) {
    EXPECT_THAT(status, IsError(ErrorKind::kConfig, "rank 1", "11 bytes", "the limit is 9 "));
  }
}

TEST(MemoryChoice, ErrorOfOneRankEndsAll) {
  for (const Status& status : ChooseWithLimits({12, 12}, 1).status) {
    EXPECT_THAT(status, IsError(ErrorKind::kConfig, "no kernel"));
  }
}

// Of a training that begins, by --memory.
TEST(MemoryChoice, ChoosesForThreeRanks) {
  Job job = tests::SmallRegression();
  job.model.layer[0].kind = LinearSpec{10, 4000, true};
  job.model.layer[2].kind = LinearSpec{4000, 2, true};
  job.batch.target = 200;
  job.optimizer = {.lr = 0.1, .kind = SgdSpec{}};
  const PlanRequest request{.gpus_per_node = 3, .target_batch = 200};
  const JobForMemory all(job, ValueOrThrow(InOneMicroStep(request)));
  std::vector<std::vector<MemoryNeed>> needs(3);
  std::vector<std::int64_t> chosen(3);
  ExpectOk(RunThreadRanks(3, {}, [&](Communicator& comm) -> Status {
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (const std::int64_t memory : {std::int64_t{1} << 33, std::int64_t{1} << 34}) {
      GACCD_ASSIGN_OR_RETURN(
          const ChosenPlan of,
          ChooseForTraining(comm, comm, all.Training(), request, all.Options(), memory));
      needs[rank].push_back(*of.choice.plan().memory());
      chosen[rank] = of.choice.plan().request().micro_batch;
    }
    return Status::Ok();
  }));
  EXPECT_THAT(chosen, ::testing::Each(67));
  EXPECT_EQ(needs[0][0].limit, (std::int64_t{1} << 33) - (std::int64_t{1} << 33) / 100 * 3);
  EXPECT_EQ(needs[0][0].limit, needs[2][0].limit);
  EXPECT_GT(needs[0][0].bytes, 67 * 4000 * 4);
}

TEST(MemoryLimit, IsMinOfFlagAndMachine) {
  const auto flag = ValueOrThrow(FindMemoryLimit(1'000'000'000, Device::kCpu, 8));
  EXPECT_EQ(flag.bytes, 970'000'000);
  EXPECT_EQ(flag.text, "1000.0 MB (--memory), 30.0 MB stay free");
  EXPECT_EQ(ValueOrThrow(FindMemoryLimit(100'000'000, Device::kCpu, 8)).bytes, 84'000'000);
  EXPECT_EQ(ValueOrThrow(FindMemoryLimit(1000, Device::kCpu, 8)).bytes, 0);
  EXPECT_EQ(ValueOrThrow(FindMemoryLimit(100'000'000, Device::kCuda, 8)).bytes, 0);
  const auto gpu = ValueOrThrow(FindMemoryLimit(80'000'000'000, Device::kCuda, 8));
  EXPECT_LT(gpu.bytes, 77'600'000'000 - kGpuLibraryBytes);
  EXPECT_THAT(gpu.text, HasSubstr(" for libraries"));
  const auto alone = ValueOrThrow(FindMemoryLimit(std::nullopt, Device::kCpu, 1));
  const auto shared = ValueOrThrow(FindMemoryLimit(std::nullopt, Device::kCpu, 4));
  EXPECT_LT(shared.bytes, alone.bytes);
  EXPECT_THAT(shared.text, HasSubstr("1/4 of what "));
}

}  // namespace
}  // namespace gaccd
