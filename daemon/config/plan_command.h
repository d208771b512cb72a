// `gaccd plan`: everything it prints. Reads at most the job file; touches nothing else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

struct PlanOutput {
  std::string text;  // in the asked format; ends with a newline
  Status verdict;    // kConfig when --strict was given and a plan is not exact
  Job job;           // with what the flags say
  Plan plan;
};

// Chooses for --micro-batch=auto. `whole`: the plan in one micro-step.
using PlanChooser = std::function<Result<Plan>(const Job& job, const Plan& whole)>;

// choose: null leaves --micro-batch=auto at one micro-step. Errors: those of LoadJob, OverlayFlags,
// ToPlanRequest, ParseSpeedFlag, SpeedsOfNodes, Plan::Make, InOneMicroStep and `choose`.
[[nodiscard]] Result<PlanOutput> MakePlanOutput(const Flags& flags,
                                                const PlanChooser& choose = nullptr);

// The plan of --micro-batch: as it is, or of auto the one in one micro-step. kConfig for flags that
// do not go with a pipeline.
[[nodiscard]] Result<Plan> PlanBeforeChoice(const PlanRequest& request, const Flags& flags);

// --strict: kConfig with both batches unless the plan, or that of every stage of a target schedule,
// is exact.
[[nodiscard]] Status RequireExact(const BatchSpec& batch, const Plan& plan);

// A line for each size of an update (of a target schedule, those of its stages) that --rounding
// makes another one than the target.
[[nodiscard]] std::vector<std::string> RoundingWarnings(const BatchSpec& batch, const Plan& plan);

}  // namespace gaccd
