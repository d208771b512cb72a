// What `gaccd plan --job` prints about the run in addition to its batch.
#pragma once

#include <string>

#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Updates of an epoch and of the run, with the smaller ones; which parameters decay; the bytes that
// several ranks keep and send for the model (sharded or not); memory of the busiest rank, on a CPU
// unless the job's device is cuda: lines as those of PlanText(). Reads the headers of the data, not
// its values. What cannot be known here is named with the reason: data that are elsewhere, a model
// that does not fit them or this machine.
// *error: such a reason where a training would end with it on any machine (kConfig, kData), as
// layers or samples that do not fit.
[[nodiscard]] std::string PlannedRunText(const Job& job, const Plan& plan, Status* error = nullptr);

// --micro-batch=auto in `gaccd plan`: the plan by the memory of a rank, with its table for people
// (MemoryTableText), which says where the copies of a checkpoint are missing for want of --run-dir.
// whole: the plan in one micro-step. Errors: those of opening the data and of ChooseForPlan().
[[nodiscard]] Result<Plan> ChoosePlan(const Job& job, const Plan& whole, const Flags& flags,
                                      std::string* table);

}  // namespace gaccd
