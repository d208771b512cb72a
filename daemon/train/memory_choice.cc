#include "daemon/train/memory_choice.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/data/index_source.h"
#include "daemon/data/prefetcher.h"
#include "daemon/data/sample_order.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/planned_memory.h"
#include "daemon/optim/optimizer.h"
#include "daemon/tensor/shard_layout.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/pipeline.h"

namespace gaccd {

namespace {

MemoryLimit MakeLimit(std::int64_t bytes, const std::string& what) {
  const std::int64_t reserve = std::max(bytes / 100 * kReservePercent, kMinReserveBytes);
  return {std::max<std::int64_t>(bytes - reserve, 0),
          StrCat(Megabytes(bytes), " (", what, "), ", Megabytes(reserve), " stay free")};
}

Result<MemoryLimit> CpuMemoryLimit(std::int64_t ranks) {
  const auto shared = FreeSharedMemory();
  if (!shared) {
    return Status(ErrorKind::kOs,
                  "the free memory is not known: /proc/meminfo cannot be read; "
                  "--memory=SIZE says what a rank may use");
  }
  GACCD_ASSIGN_OR_RETURN(const std::int64_t process, ResidentBytes());
  const std::uint64_t part = shared->free_bytes / static_cast<std::uint64_t>(ranks);
  const std::uint64_t free = std::min(part, FreeAddressSpace().value_or(part));
  return MakeLimit(
      process + static_cast<std::int64_t>(free),
      StrCat(ranks > 1 ? StrCat("1/", ranks, " of ") : "", "what ", shared->limit, " has free"));
}

// Bytes and limit of each rank.
Result<std::vector<std::int64_t>> GatherNeeds(Communicator& comm, const MemoryNeed& mine) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(comm.size()));
  all[2 * rank] = mine.bytes;
  all[2 * rank + 1] = mine.limit;
  const auto view = View(std::span(all));
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(view, view));
  return all;
}

MicroBatchSearch MakeSearch(const PlannedTraining& training) {
  return {.max_micro_batch = training.any_load ? BatchFeed::kMaxPreparedSizes : 0,
          .recompute = !training.job.batch.recompute && training.model.has_blocks(),
          .cost = ComputeUpdateCost(training.model)};
}

// For a GPU with an existing `engine`.
Result<MemoryLimit> GpuMemoryLimit(Engine& engine, const std::optional<MemoryLimit>& asked) {
  GACCD_ASSIGN_OR_RETURN(const std::int64_t free, engine.FreeDeviceBytes());
  MemoryLimit found = MakeLimit(free + engine.memory().device_bytes - DeviceMemory::kReserveBytes,
                                "what this GPU has free next to its libraries");
  return asked && asked->bytes < found.bytes ? *asked : found;
}

}  // namespace

UpdateCost ComputeUpdateCost(const Model& model) {
  return {.flops_per_sample = model.FlopsPerSample(),
          .recomputed_flops_per_sample = model.RecomputedFlopsPerSample(),
          .parameters = model.layout().parameters()};
}

Result<MemoryLimit> FindMemoryLimit(std::optional<std::int64_t> flag, Device device,
                                    std::int64_t ranks) {
  if (!flag) return CpuMemoryLimit(ranks);
  MemoryLimit limit = MakeLimit(*flag, "--memory");
  if (device != Device::kCuda) return limit;
  constexpr std::int64_t kTaken = kGpuLibraryBytes + DeviceMemory::kReserveBytes;
  limit.bytes = std::max<std::int64_t>(limit.bytes - kTaken, 0);
  limit.text += StrCat(", ", Megabytes(kTaken), " for libraries");
  return limit;
}

Status CheckFits(const MicroBatchChoice& choice, std::string_view who) {
  if (choice.fits) return Status::Ok();
  const MemoryNeed& need = *choice.plan().memory();
  return {
      ErrorKind::kConfig,
      StrCat(
          "--micro-batch=auto: ", who, " needs ", need.bytes, " bytes (", Megabytes(need.bytes),
          ") for micro-batches of ", choice.plan().request().micro_batch, ", recompute: ",
          Name(choice.plan().request().recompute), "; this is the least possible; the limit is ",
          need.limit, " (", Megabytes(need.limit), "), without the ", Megabytes(kMinReserveBytes),
          " or more that stay free; give the job more memory (--mem; a larger --memory, if it is "
          "given), or start fewer ranks on a node")};
}

Result<MicroBatchChoice> ChooseOnRanks(Communicator& comm, const PlanRequest& request,
                                       const MicroBatchSearch& search, const FindOwnNeed& find) {
  std::map<std::pair<std::int64_t, Recompute>, int> tightest;  // rank by micro-batch
  const auto key = [](const Plan& plan) {
    return std::pair(plan.request().micro_batch, plan.request().recompute);
  };
  const auto find_on_all = [&](const Plan& plan) -> Result<MemoryNeed> {
    const Result<MemoryNeed> mine = find(plan);
    GACCD_RETURN_IF_ERROR(AgreeOn(comm, mine.status()).status);
    GACCD_ASSIGN_OR_RETURN(const auto all, GatherNeeds(comm, *mine));
    MemoryNeed least = {all[0], all[1]};
    int& tightest_rank = tightest[key(plan)];
    for (int rank = 1; rank < comm.size(); ++rank) {
      const auto at = 2 * static_cast<std::size_t>(rank);
      const MemoryNeed need = {all[at], all[at + 1]};
      if (need.limit - need.bytes >= least.limit - least.bytes) continue;
      least = need;
      tightest_rank = rank;
    }
    return least;
  };
  GACCD_ASSIGN_OR_RETURN(MicroBatchChoice choice, ChooseMicroBatch(request, search, find_on_all));
  GACCD_RETURN_IF_ERROR(
      CheckFits(choice, RankOnHost(tightest[key(choice.plan())], comm.topology().hosts)));
  return choice;
}

Result<ChosenPlan> ChooseForTraining(Communicator& comm, Communicator& device_comm,
                                     const PlannedTraining& training, const PlanRequest& request,
                                     const EngineOptions& options,
                                     std::optional<std::int64_t> memory) {
  const bool on_gpu = options.choice.device == Device::kCuda;
  std::optional<MemoryLimit> limit;
  if (!on_gpu || memory) {
    auto found = FindMemoryLimit(memory, options.choice.device, comm.topology().local_size);
    GACCD_RETURN_IF_ERROR(AgreeOn(comm, found.status()).status);
    limit = *std::move(found);
  }
  PlanRequest smallest = request;
  smallest.micro_batch = 1;
  GACCD_ASSIGN_OR_RETURN(const Plan first, Plan::Make(smallest));
  auto sizes = EngineSizes(training, first, comm.rank());
  GACCD_RETURN_IF_ERROR(AgreeOn(comm, sizes.status()).status);
  EngineOptions of_first = options;
  of_first.replica = *std::move(sizes);
  of_first.measure_process = true;
  const auto engine = MakeEngine(device_comm, training.model, of_first);
  GACCD_RETURN_IF_ERROR(AgreeOn(comm, engine.status()).status);
  if (on_gpu) {
    auto found = GpuMemoryLimit(**engine, limit);
    GACCD_RETURN_IF_ERROR(AgreeOn(comm, found.status()).status);
    limit = *std::move(found);
  }
  const MicroBatchSearch search = MakeSearch(training);
  const auto find = [&](const Plan& plan) -> Result<MemoryNeed> {
    const auto plan_engine = [&](const ReplicaOptions& replica) {
      return (*engine)->PlanMemory(replica);
    };
    GACCD_ASSIGN_OR_RETURN(const EngineMemory need,
                           PlanRankMemory(training, plan, comm.rank(), plan_engine));
    const bool uses_gpu = need.device_bytes > 0;
    return MemoryNeed{.bytes = uses_gpu ? need.device_bytes : need.process_bytes + need.host_bytes,
                      .limit = limit->bytes};
  };
  GACCD_ASSIGN_OR_RETURN(MicroBatchChoice choice, ChooseOnRanks(comm, request, search, find));
  return ChosenPlan{std::move(choice), *std::move(limit)};
}

Result<ChosenPlan> ChooseForPlan(const PlannedTraining& training, const Plan& whole,
                                 std::optional<std::int64_t> memory) {
  GACCD_ASSIGN_OR_RETURN(ChosenPlan chosen, SearchForPlan(training, whole, memory));
  GACCD_RETURN_IF_ERROR(CheckFits(chosen.choice, "a rank"));
  return chosen;
}

Result<ChosenPlan> SearchForPlan(const PlannedTraining& training, const Plan& whole,
                                 std::optional<std::int64_t> memory, std::int64_t process_bytes) {
  const Device device = training.job.device == Device::kCuda ? Device::kCuda : Device::kCpu;
  if (device == Device::kCuda && !memory) {
    return Status(ErrorKind::kUsage,
                  "plan: --micro-batch=auto with --device=cuda needs --memory=SIZE, that of a GPU");
  }
  GACCD_ASSIGN_OR_RETURN(const MemoryLimit limit,
                         FindMemoryLimit(memory, device, whole.request().gpus_per_node));
  EngineOptions options{.replica = {},
                        .optimizer = training.job.optimizer,
                        .shard = training.job.shard,
                        .numerics = GetNumerics(training.job),
                        .choice = {.device = device}};
  const int parts = CountStateParts(training.job, whole);
  std::int64_t process = process_bytes;
  const auto find = [&](const Plan& plan) -> Result<MemoryNeed> {
    const auto plan_engine = [&](const ReplicaOptions& sizes) {
      options.replica = sizes;
      return PlanEngineMemory(training.model, options, parts);
    };
    GACCD_ASSIGN_OR_RETURN(
        const EngineMemory planned,
        PlanRankMemory(training, plan, BusiestRank(plan, training.schedule), plan_engine));
    if (device == Device::kCuda) return MemoryNeed{planned.device_bytes, limit.bytes};
    if (process == 0) {
      GACCD_ASSIGN_OR_RETURN(process, ResidentBytes());
    }
    return MemoryNeed{process + planned.host_bytes, limit.bytes};
  };
  MicroBatchSearch search = MakeSearch(training);
  search.smaller = 2;
  GACCD_ASSIGN_OR_RETURN(MicroBatchChoice choice, ChooseMicroBatch(whole.request(), search, find));
  return ChosenPlan{std::move(choice), limit, process};
}

int BusiestRank(const Plan& plan, const UpdateSchedule& schedule) {
  const auto of_largest = plan.ForSamples(schedule.sizes().back());
  const Plan& largest = of_largest.ok() ? *of_largest : plan;
  int rank = 0;
  while (largest.Load(rank) != largest.ranks_hi_samples()) ++rank;
  return rank;
}

namespace {

std::int64_t Largest(const std::set<std::int64_t>& sizes) {
  return sizes.empty() ? 0 : *sizes.rbegin();
}

Result<std::int64_t> PrefetchBytes(const Dataset& data, std::int64_t samples) {
  const auto bytes = Prefetcher::RingBytes(data.spec(), samples);
  if (bytes) return static_cast<std::int64_t>(*bytes) + data.gather_bytes(samples);
  return Status(ErrorKind::kConfig, StrCat("micro-batches of ", samples, " samples of ",
                                           Describe(data.spec()), " do not fit the address space"));
}

// Elements of a buffer are divided over the ranks.
std::int64_t CheckpointBytes(const PlannedTraining& training, std::int64_t world) {
  const FlatLayout& layout = training.model.layout();
  const std::int64_t elements =
      layout.size() + StateElements(training.job.optimizer, layout.trainable_size());
  return static_cast<std::int64_t>(sizeof(float)) * ((elements + world - 1) / world);
}

}  // namespace

Result<ReplicaOptions> EngineSizes(const PlannedTraining& training, const Plan& plan, int rank) {
  const Dataset& data = *training.data.train;
  const SampleOrder order(training.job.seed, data.size(), training.job.data.shuffle);
  GACCD_ASSIGN_OR_RETURN(BatchFeed feed,
                         BatchFeed::Make(data, order, training.schedule, plan, rank,
                                         SelectProgramGenerator(training.job, training.model)));
  if (training.any_load) feed.PrepareForOtherLoads();
  ReplicaOptions sizes{
      .micro_batches = feed.BatchSizes(),
      .micro_steps_per_update = feed.max_micro_steps(),
      .effective_batch = training.schedule.sizes().back(),
      .rank_samples = feed.max_samples(),
      .in_flight = MaxInFlight(training.job, training.model, feed.max_micro_steps()),
      .recompute = plan.request().recompute,
      .any_split = plan.any_split()};
  if (training.data.eval != nullptr) {
    sizes.eval_batches = EvalBatchSizes(
        MakeEvalShard(training.data.eval->size(), rank / plan.stages(), plan.pipelines(),
                      plan.any_split() ? plan.request().micro_batch : 1),
        plan.request().micro_batch);
  }
  return sizes;
}

int CountStateParts(const Job& job, const Plan& plan, std::int64_t stage) {
  if (job.shard == Sharding::kNone) return 1;
  std::map<std::int64_t, int> ranks;  // ranks of the stage, by node
  for (std::int64_t rank = stage; rank < plan.world(); rank += plan.stages()) {
    ++ranks[rank / plan.request().gpus_per_node];
  }
  std::vector<int> ranks_of_nodes;
  for (const auto& [node, count] : ranks) ranks_of_nodes.push_back(count);
  return ShardGrid::Make(job.shard, ranks_of_nodes).parts();
}

Result<EngineMemory> PlanRankMemory(const PlannedTraining& training, const Plan& plan, int rank,
                                    const PlanEngine& plan_engine) {
  GACCD_ASSIGN_OR_RETURN(const ReplicaOptions sizes, EngineSizes(training, plan, rank));
  GACCD_ASSIGN_OR_RETURN(EngineMemory memory, plan_engine(sizes));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t ring,
                         PrefetchBytes(*training.data.train, Largest(sizes.micro_batches)));
  memory.host_bytes += ring;
  if (training.data.eval != nullptr) {
    GACCD_ASSIGN_OR_RETURN(const std::int64_t other,
                           PrefetchBytes(*training.data.eval, Largest(sizes.eval_batches)));
    memory.host_bytes += other;
  }
  if (training.saves) memory.host_bytes += 2 * CheckpointBytes(training, plan.world());
  return memory;
}

}  // namespace gaccd
