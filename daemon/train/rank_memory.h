// What a rank holds while it trains, planned before it does: for --micro-batch=auto.
#pragma once

#include <cstdint>
#include <functional>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/update_schedule.h"
#include "daemon/engine/engine.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

// A training without its plan. All of it outlives what uses it.
struct PlannedTraining {
  const Job& job;
  const Model& model;
  const TrainingData& data;
  const UpdateSchedule& schedule;
  bool saves = false;     // checkpoints
  bool any_load = false;  // BatchFeed::PrepareForOtherLoads()
};

// The sizes of what the engine of `rank` runs in this plan, with the smaller updates and the
// evaluations. Of texts that are cut to their lengths the whole ones are among them.
Result<ReplicaOptions> EngineSizes(const PlannedTraining& training, const Plan& plan, int rank);

// Into how many parts the optimiser's state is divided, among the ranks of a stage.
[[nodiscard]] int StatePartsOf(const Job& job, const Plan& plan, std::int64_t stage = 0);

// Engine::PlanMemory(), or PlanEngineMemory().
using PlanEngine = std::function<Result<EngineMemory>(const ReplicaOptions& sizes)>;

// The engine; the rings of training and evaluation batches; two copies of this rank's part of a
// checkpoint. process_bytes is not in host_bytes.
Result<EngineMemory> PlanRankMemory(const PlannedTraining& training, const Plan& plan, int rank,
                                    const PlanEngine& plan_engine);

}  // namespace gaccd
