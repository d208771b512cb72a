// How the stages of a pipeline are made from a job: which blocks each has, what it does in an
// update. A job without a pipeline has one stage, and nothing of this changes it.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/engine/step_program.h"
#include "daemon/replica/model.h"

namespace gaccd {

// The job's, or those that balance the products of the stages. kConfig as BalanceStages().
Result<std::vector<std::int64_t>> BlocksOfStages(const Job& job, const Model& model);

// The model becomes that of a rank. After Model::ApplyRules(). kConfig: see Model::SetStage().
Status MakeStage(const Job& job, std::int64_t rank, Model* model);

// What an update of this job does on a rank with this model.
[[nodiscard]] ProgramGenerator GeneratorOf(const Job& job, const Model& model);

// ReplicaOptions::in_flight in updates of so many micro-steps.
[[nodiscard]] std::int64_t InFlightOf(const Job& job, const Model& model, std::int64_t micro_steps);

}  // namespace gaccd
