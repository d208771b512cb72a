// The pipeline of a job in `gaccd plan`.
#pragma once

#include <functional>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

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
