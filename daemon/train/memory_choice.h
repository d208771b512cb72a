// --micro-batch=auto: the largest micro-batch whose planned memory fits, the same on all ranks.
//
// Memory limit of a rank:
//   --memory=SIZE  SIZE; on GPUs minus kGpuLibraryBytes and DeviceMemory::kReserveBytes
//   a CPU          the current memory of the process, plus an equal share per rank of the node's
//                  memory that is free on the node and in the job's cgroup (FreeSharedMemory())
//   a GPU          the memory that an engine for micro-batches of one sample leaves free, plus the
//                  planned memory of that engine: so libraries such as NCCL are accounted for
// kReservePercent of the limit, at least kMinReserveBytes, stay free: the process grows slightly
// during training, and plans have this accuracy. The need of a rank is PlanRankMemory(), on a CPU
// plus the current process with such an engine. No activations are allocated as a test: graphs are
// recorded and kernels prepared for every micro-batch, and activations are only counted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/plan/micro_batch.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

// Plans the memory of a rank during training before it starts: for --micro-batch=auto.

// A training without its plan. All members must outlive it.
struct PlannedTraining {
  const Job& job;
  const Model& model;
  const TrainingData& data;
  const UpdateSchedule& schedule;
  bool saves = false;     // checkpoints
  bool any_load = false;  // calls BatchFeed::PrepareForOtherLoads()
};

// The sizes that the engine of `rank` needs in this plan, including smaller updates and
// evaluations. If texts are cut to their lengths, full lengths are included.
Result<ReplicaOptions> EngineSizes(const PlannedTraining& training, const Plan& plan, int rank);

// Number of parts of the sharded optimiser's state among the ranks of a stage.
[[nodiscard]] int CountStateParts(const Job& job, const Plan& plan, std::int64_t stage = 0);

// Engine::PlanMemory(), or PlanEngineMemory().
using PlanEngine = std::function<Result<EngineMemory>(const ReplicaOptions& sizes)>;

// Memory of the engine, of the rings of training and evaluation batches, and of two copies of this
// rank's part of a checkpoint. host_bytes does not include process_bytes.
Result<EngineMemory> PlanRankMemory(const PlannedTraining& training, const Plan& plan, int rank,
                                    const PlanEngine& plan_engine);

inline constexpr std::int64_t kReservePercent = 3;
inline constexpr std::int64_t kMinReserveBytes = 16'000'000;
// CUDA, cuBLAS, NCCL with its channels. An estimate, used if there is no GPU to measure it on.
inline constexpr std::int64_t kGpuLibraryBytes = std::int64_t{1} << 30;

struct MemoryLimit {
  std::int64_t bytes = 0;  // without the reserve
  // Text for users: "1234.5 MB (--memory), 37.0 MB stay free", on GPUs with --memory also ",
  // 1342.2 MB for libraries".
  std::string text;
};

// flag: value of --memory. On a CPU without it: `ranks` share this machine.
[[nodiscard]] Result<MemoryLimit> FindMemoryLimit(std::optional<std::int64_t> flag, Device device,
                                                  std::int64_t ranks);

[[nodiscard]] UpdateCost ComputeUpdateCost(const Model& model);

struct ChosenPlan {
  MicroBatchChoice choice;
  MemoryLimit limit;               // on this rank
  std::int64_t process_bytes = 0;  // of the program, without planned memory; 0: not measured
};

// kConfig, with both sizes, if no micro-batch fits. who: "rank 3 on n07".
[[nodiscard]] Status CheckFits(const MicroBatchChoice& choice, std::string_view who);

// Returns the need and the limit of this rank.
using FindOwnNeed = std::function<Result<MemoryNeed>(const Plan& plan)>;
// Collective: every rank computes its need of each plan; the choice is the same on all. Errors:
// that of the lowest rank with an error, those of ChooseMicroBatch() and of CheckFits().
[[nodiscard]] Result<MicroBatchChoice> ChooseOnRanks(Communicator& comm, const PlanRequest& request,
                                                     const MicroBatchSearch& search,
                                                     const FindOwnNeed& find);

// The choice at the start of a training. Collective. options: of its engine, without sizes;
// device_comm: as in TrainerOptions.
[[nodiscard]] Result<ChosenPlan> ChooseForTraining(Communicator& comm, Communicator& device_comm,
                                                   const PlannedTraining& training,
                                                   const PlanRequest& request,
                                                   const EngineOptions& options,
                                                   std::optional<std::int64_t> memory);

// The choice for a training on other machines, for `gaccd plan`: uses the busiest rank, and also
// considers two smaller micro-batches. kUsage for GPUs without `memory`.
[[nodiscard]] Result<ChosenPlan> ChooseForPlan(const PlannedTraining& training, const Plan& whole,
                                               std::optional<std::int64_t> memory);

// The same, but also succeeds if no micro-batch fits (choice.fits is false). process_bytes: of an
// earlier search, as each enlarges this process; 0: measures them.
[[nodiscard]] Result<ChosenPlan> SearchForPlan(const PlannedTraining& training, const Plan& whole,
                                               std::optional<std::int64_t> memory,
                                               std::int64_t process_bytes = 0);

// The rank with the most samples: 0, unless ranks have different speeds.
[[nodiscard]] int BusiestRank(const Plan& plan, const UpdateSchedule& schedule);

}  // namespace gaccd
