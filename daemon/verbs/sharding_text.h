// What `gaccd plan --job` prints about shard: bytes that ranks keep and send, on this world and on
// others, and which mode fits a rank's memory. Lines as those of PlanText().
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/train/rank_memory.h"

namespace gaccd {

// What a rank keeps, and what it must send in an update whichever way the sums take
// (daemon/engine/shard_traffic.h); of the mean rank, its state of the one that has most of it.
// Sharded, also for one node less and one more, and for the other modes. planned: of a rank,
// with weights, gradients and state.
[[nodiscard]] std::string ShardingText(const Job& job, const FlatLayout& layout, const Plan& plan,
                                       std::int64_t planned);

// For every mode the largest micro-batch that fits `memory` (bytes of a rank), as a table.
// training.job.shard is not looked at. Errors: those of opening the graphs.
[[nodiscard]] Result<std::string> FittingModesText(const PlannedTraining& training,
                                                   const Plan& whole, std::int64_t memory);

}  // namespace gaccd
