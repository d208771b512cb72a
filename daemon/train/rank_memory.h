// Plans the memory of a rank during training before it starts: for --micro-batch=auto.
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

// A training without its plan. All members must outlive it.
struct PlannedTraining {
  const Job& job;
  const Model& model;
  const TrainingData& data;
  const UpdateSchedule& schedule;
  bool saves = false;     // checkpoints
  bool any_load = false;  // calls BatchFeed::PrepareForOtherLoads()
};

// The sizes that the engine of `rank` needs in this plan, including smaller updates and
// evaluations. If texts are cut to their lengths, full lengths are included.
Result<ReplicaOptions> EngineSizes(const PlannedTraining& training, const Plan& plan, int rank);

// Number of parts of the sharded optimiser's state among the ranks of a stage.
[[nodiscard]] int CountStateParts(const Job& job, const Plan& plan, std::int64_t stage = 0);

// Engine::PlanMemory(), or PlanEngineMemory().
using PlanEngine = std::function<Result<EngineMemory>(const ReplicaOptions& sizes)>;

// Memory of the engine, of the rings of training and evaluation batches, and of two copies of this
// rank's part of a checkpoint. host_bytes does not include process_bytes.
Result<EngineMemory> PlanRankMemory(const PlannedTraining& training, const Plan& plan, int rank,
                                    const PlanEngine& plan_engine);

}  // namespace gaccd
