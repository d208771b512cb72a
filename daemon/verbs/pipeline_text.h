// The pipeline of a job, in the words of `gaccd plan`.
#pragma once

#include <functional>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

// Bytes that a rank with this model needs in this plan: on its GPU where the job asks for one, else
// on a CPU.
using StageMemory = std::function<Result<std::int64_t>(const Model& stage)>;

// The stages, what they send, the order in which they compute, the predicted bubble. `model` is
// whole. kConfig: it cannot be divided so.
Result<std::string> PipelineText(const Job& job, const Model& model, const Plan& plan,
                                 const StageMemory& memory);

}  // namespace gaccd
