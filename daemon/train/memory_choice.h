// --micro-batch=auto: the most samples at once whose planned memory fits, the same on all ranks.
//
// What a rank may hold:
//   --memory=SIZE  that; of GPUs less kGpuLibraryBytes and DeviceMemory::kReserveBytes
//   a CPU          what the process holds now and, of what the node and the job's cgroup have free
//                  (FreeSharedMemory()), an equal part for each rank of the node
//   a GPU          what is free on it next to an engine for micro-batches of one sample, and what
//                  that engine is planned to hold: so libraries, NCCL among them, have theirs
// of which kReservePercent stay free, at least kLeastReserveBytes: the process grows a little while
// it trains, and plans are that exact. What a rank needs: PlanRankMemory(), and on a CPU the
// process as it is next to such an engine. Nothing is tried out: for every micro-batch graphs are
// recorded and kernels prepared, and activations are only counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/plan/micro_batch.h"
#include "daemon/train/rank_memory.h"

namespace gaccd {

inline constexpr std::int64_t kReservePercent = 3;
inline constexpr std::int64_t kLeastReserveBytes = 16'000'000;
// CUDA, cuBLAS, NCCL with its channels. An estimate, for where there is no GPU to measure it on.
inline constexpr std::int64_t kGpuLibraryBytes = std::int64_t{1} << 30;

struct MemoryLimit {
  std::int64_t bytes = 0;  // without the reserve
  std::string text;        // for people: "1234.5 MB (--memory)"
};

// flag: of --memory. On a CPU without it: `ranks` share this machine.
[[nodiscard]] Result<MemoryLimit> FindMemoryLimit(std::optional<std::int64_t> flag, Device device,
                                                  std::int64_t ranks);

[[nodiscard]] UpdateCost CostOf(const Model& model);

struct ChosenPlan {
  MicroBatchChoice choice;
  MemoryLimit limit;  // of this rank
};

// kConfig, with both bytes, where no micro-batch fits. `who`: "rank 3 on n07".
[[nodiscard]] Status CheckFits(const MicroBatchChoice& choice, std::string_view who);

// Finds what one rank needs, and may hold.
using FindOwnNeed = std::function<Result<MemoryNeed>(const Plan& plan)>;
// Collective: every rank finds its own need of each plan; the choice is the same on all. Errors:
// that of the lowest rank that has one, those of ChooseMicroBatch() and of CheckFits().
[[nodiscard]] Result<MicroBatchChoice> ChooseOnRanks(Communicator& comm, const PlanRequest& request,
                                                     const MicroBatchSearch& search,
                                                     const FindOwnNeed& find);

// The choice of a training that begins. Collective. options: of its engine, without sizes;
// device_comm: as in TrainerOptions.
[[nodiscard]] Result<ChosenPlan> ChooseForTraining(Communicator& comm, Communicator& device_comm,
                                                   const PlannedTraining& training,
                                                   const PlanRequest& request,
                                                   const EngineOptions& options,
                                                   std::optional<std::int64_t> memory);

// The same of a training on other machines, for people: the busiest rank decides, and two smaller
// micro-batches are looked at. kUsage for GPUs without `memory`.
[[nodiscard]] Result<ChosenPlan> ChooseForPlan(const PlannedTraining& training, const Plan& whole,
                                               std::optional<std::int64_t> memory);

// The same also where no micro-batch fits, which choice.fits says.
[[nodiscard]] Result<ChosenPlan> SearchForPlan(const PlannedTraining& training, const Plan& whole,
                                               std::optional<std::int64_t> memory);

// The rank with the most samples: 0, unless the ranks have different speeds.
[[nodiscard]] int BusiestRank(const Plan& plan, const UpdateSchedule& schedule);

}  // namespace gaccd
