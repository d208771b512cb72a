// Output of `gaccd plan --job` about the run besides its batch.
#pragma once

#include <string>

#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Updates per epoch and run, including smaller ones; which parameters decay; the bytes that ranks
// store and send for the model (sharded or not); memory of the busiest rank, on a CPU unless the
// job's device is cuda. Lines as in PlanText(). Reads the headers of the data, not its values. What
// cannot be known here is listed with the reason: missing data, a model that does not match them or
// this machine.
// *error: such a reason if a training with these flags would fail with it on any machine (kConfig,
// kData), for example incompatible layers or samples.
[[nodiscard]] std::string PlannedRunText(const Job& job, const Plan& plan, const Flags& flags = {},
                                         Status* error = nullptr);

// --micro-batch=auto in `gaccd plan`: the plan by the memory of a rank, with its text table
// (MemoryTableText), which notes if copies of a checkpoint are excluded because --run-dir is
// missing. one_step: the plan with one micro-step. Errors: those of opening the data and of
// ChooseForPlan().
[[nodiscard]] Result<Plan> ChoosePlan(const Job& job, const Plan& one_step, const Flags& flags,
                                      std::string* table);

}  // namespace gaccd
