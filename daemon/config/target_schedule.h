// batch.target_schedule: the targets of its stages, and their plans for people and programs.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// kConfig: given together with batch.target, a first stage that does not begin at 0, one with
// neither or both of at_update and at_samples, or one that does not begin after the last one with
// the same of them. Whether stages with different ones are in order depends on the data:
// UpdateSchedule::Make().
Status CheckTargetSchedule(const BatchSpec& batch);

// batch.target, or that of the first stage. kUsage: there is none.
Result<std::int64_t> FirstTarget(const BatchSpec& batch);
// The largest one: it decides the memory.
Result<std::int64_t> LargestTarget(const BatchSpec& batch);

// `plan` with the target of the first stage, and with what it needs of the memory.
Result<Plan> FirstPlan(const BatchSpec& batch, const Plan& plan);

// A line for each stage: where it begins, target, effective batch, micro-steps, factor of the
// learning rate, ranks by load. Ends with a newline; empty without a schedule.
Result<std::string> StagesText(const BatchSpec& batch, const Plan& plan);
// PlanJson() of each stage with `stage` and where it begins, each with a newline, and with `ranks`
// followed by its RanksJson(). Without a schedule that of the plan alone.
Result<std::string> StagesJson(const BatchSpec& batch, const Plan& plan, bool ranks);

}  // namespace gaccd
