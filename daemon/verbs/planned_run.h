// Output of `gaccd plan --job` about the run besides its batch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/train/memory_choice.h"

namespace gaccd {

// Updates per epoch and run, including smaller ones; which parameters decay; the bytes that ranks
// store and send for the model (sharded or not); memory of the busiest rank, on a CPU unless the
// job's device is cuda. Lines as in PlanText(). Reads the headers of the data, not its values. What
// cannot be known here is listed with the reason: missing data, a model that does not match them or
// this machine.
// *error: such a reason if a training with these flags would fail with it on any machine (kConfig,
// kData), for example incompatible layers or samples.
[[nodiscard]] std::string PlannedRunText(const Job& job, const Plan& plan, const Flags& flags = {},
                                         Status* error = nullptr);

// --micro-batch=auto in `gaccd plan`: the plan by the memory of a rank, with its text table
// (MemoryTableText), which notes if copies of a checkpoint are excluded because --run-dir is
// missing. one_step: the plan with one micro-step. Errors: those of opening the data and of
// ChooseForPlan().
[[nodiscard]] Result<Plan> ChoosePlan(const Job& job, const Plan& one_step, const Flags& flags,
                                      std::string* table);

// Output of `gaccd plan --job` about sharding: bytes that ranks store and send, on this world and
// on others, and which mode fits a rank's memory. Lines as in PlanText().
inline constexpr std::array kShardingModes = {Sharding::kNone, Sharding::kOptimizer,
                                              Sharding::kNode, Sharding::kNodeOptimizer};

// Bytes that a rank stores, and must send in an update on every transport
// (daemon/engine/shard_exchange.h): the mean over the ranks, and the maximum for the state. If
// sharded, also for one node less and one more, and for the other modes. planned: bytes of a rank,
// including weights, gradients and state.
[[nodiscard]] std::string ShardingText(const Job& job, const FlatLayout& layout, const Plan& plan,
                                       std::int64_t planned);

// A table with the largest micro-batch of every mode that fits into `memory` (bytes of a rank).
// Ignores training.job.shard. process_bytes: as for SearchForPlan(). Errors: those of opening the
// graphs.
[[nodiscard]] Result<std::string> FittingModesText(const PlannedTraining& training,
                                                   const Plan& one_step, std::int64_t memory,
                                                   std::int64_t process_bytes);

// The pipeline of a job in `gaccd plan`.

// Bytes that a rank with this stage of the job's model needs in this plan: on its GPU if the job
// uses one, otherwise on a CPU.
using StageMemory =
    std::function<Result<std::int64_t>(const Job& job, const Plan& plan, const Model& stage)>;

// Text with the stages, their messages, the order of computation and the predicted bubble. `model`
// is the whole model. kConfig: it cannot be divided.
Result<std::string> PipelineText(const Job& job, const Model& model, const Plan& plan,
                                 const StageMemory& memory);

// A table of memory, bubble and predicted time: of this plan, with fewer and more stages, without a
// pipeline, and with the other modes of sharding. What cannot be planned has no row.
[[nodiscard]] std::string OtherPipelinesText(const Job& job, const Model& model, const Plan& plan,
                                             const StageMemory& memory);

}  // namespace gaccd
