// `gaccd plan`: its whole output. Reads at most the job file; has no side effects.
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
  std::string text;  // in the requested format; ends with a newline
  Status verdict;    // kConfig if --strict was given and a plan is not exact
  Job job;           // including the flags
  Plan plan;
};

// Chooses the plan for --micro-batch=auto. one_step: the plan with one micro-step.
using PlanChooser = std::function<Result<Plan>(const Job& job, const Plan& one_step)>;

// choose: null leaves --micro-batch=auto at one micro-step. Errors: those of LoadJob, OverlayFlags,
// ToPlanRequest, ParseSpeedFlag, RankSpeedsByNode, PlanBeforeChoice and `choose`; kUsage for
// --ranks without --format=json.
[[nodiscard]] Result<PlanOutput> MakePlanOutput(const Flags& flags,
                                                const PlanChooser& choose = nullptr);

// The plan for --micro-batch: unchanged, or for auto with one micro-step. kConfig for flags that
// pipelines do not support.
[[nodiscard]] Result<Plan> PlanBeforeChoice(const PlanRequest& request, const Flags& flags);

// --strict: kConfig with both batches unless the plan, or the plan of every stage of a target
// schedule, is exact.
[[nodiscard]] Status RequireExact(const BatchSpec& batch, const Plan& plan);

// One line for each target (of a schedule: of each stage) from which --rounding makes the effective
// batch differ, and one for a reference batch that no learning-rate rule uses.
[[nodiscard]] std::vector<std::string> BatchWarnings(const BatchSpec& batch, const Plan& plan);

}  // namespace gaccd
