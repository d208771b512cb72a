// The pipeline stages of a job: the blocks of each stage and its work in an update. A job without a
// pipeline has one stage and is not affected.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/engine/update_program.h"
#include "daemon/replica/model.h"

namespace gaccd {

// The blocks set by the job, or those that balance the matrix products of the stages. kConfig as
// BalanceStages().
Result<std::vector<std::int64_t>> AssignBlocks(const Job& job, const Model& model);

// Makes `model` the stage of `rank`. Call after Model::ApplyRules(). kConfig: see
// Model::SetStage().
Status MakeStage(const Job& job, std::int64_t rank, Model* model);

// The program generator of this job for a rank with this model.
[[nodiscard]] ProgramGenerator SelectProgramGenerator(const Job& job, const Model& model);

// ReplicaOptions::in_flight for updates of `micro_steps` micro-steps.
[[nodiscard]] std::int64_t MaxInFlight(const Job& job, const Model& model,
                                       std::int64_t micro_steps);

}  // namespace gaccd
