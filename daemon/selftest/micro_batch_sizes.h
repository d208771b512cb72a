// The sizes for which a replica of one rank is prepared in an update of the plan.
#pragma once

#include "daemon/plan/plan.h"
#include "daemon/replica/prepared_graphs.h"

namespace gaccd {

[[nodiscard]] inline ReplicaOptions MicroBatchSizes(const Plan& plan, int rank) {
  return {.micro_batches = plan.MicroBatchSizes(rank),
          .micro_steps_per_update = plan.accum_steps(),
          .effective_batch = plan.effective_batch(),
          .recompute = plan.request().recompute};
}

}  // namespace gaccd
