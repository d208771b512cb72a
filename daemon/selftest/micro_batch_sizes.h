// What a replica of one rank is prepared for in an update of the plan.
#pragma once

#include "daemon/plan/plan.h"
#include "daemon/replica/prepared_graphs.h"

namespace gaccd {

[[nodiscard]] inline ReplicaOptions MicroBatchSizes(const Plan& plan, int rank) {
  ReplicaOptions sizes{.micro_steps_per_update = plan.accum_steps(),
                       .effective_batch = plan.effective_batch(),
                       .recompute = plan.request().recompute};
  for (const std::int64_t step : {std::int64_t{0}, plan.accum_steps() - 1}) {
    if (plan.MicroBatch(rank, step) > 0) sizes.micro_batches.insert(plan.MicroBatch(rank, step));
  }
  return sizes;
}

}  // namespace gaccd
