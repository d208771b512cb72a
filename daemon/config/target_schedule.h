// batch.target_schedule: the targets of its stages, and text and JSON of their plans.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// kConfig: batch.target is set too, the first stage does not begin at 0, a stage has neither or
// both of at_update and at_samples, or does not begin after the previous one with the same field.
// Whether stages with different fields are in order depends on the data: UpdateSchedule::Make().
Status CheckTargetSchedule(const BatchSpec& batch);

// batch.target, or that of the first stage. kUsage: there is none.
Result<std::int64_t> FirstTarget(const BatchSpec& batch);
// The largest target, which determines the memory.
Result<std::int64_t> LargestTarget(const BatchSpec& batch);

// `plan` with the target of the first stage, and its memory need.
Result<Plan> FirstPlan(const BatchSpec& batch, const Plan& plan);

// One line per stage: its begin, target, effective batch, micro-steps, learning-rate factor, ranks
// by load. Ends with a newline; empty without a schedule.
Result<std::string> StagesText(const BatchSpec& batch, const Plan& plan);
// PlanJson() of each stage with `stage` and its begin, each with a newline, and if `ranks`,
// followed by its RanksJson(). Without a schedule only that of the plan.
Result<std::string> StagesJson(const BatchSpec& batch, const Plan& plan, bool ranks);

}  // namespace gaccd
