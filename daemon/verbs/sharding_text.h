// Output of `gaccd plan --job` about sharding: bytes that ranks store and send, on this world and
// on others, and which mode fits a rank's memory. Lines as in PlanText().
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/train/rank_memory.h"

namespace gaccd {

inline constexpr std::array kShardingModes = {Sharding::kNone, Sharding::kOptimizer,
                                              Sharding::kNode, Sharding::kNodeOptimizer};

// Bytes that a rank stores, and must send in an update on every transport
// (daemon/engine/shard_traffic.h): the mean over the ranks, and the maximum for the state. If
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

}  // namespace gaccd
