// `gaccd plan`: everything it prints. Reads at most the job file; touches nothing else.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

struct PlanOutput {
  std::string text;  // in the asked format; ends with a newline
  Status verdict;    // kConfig when --strict was given and the plan is not exact
  Job job;           // with what the flags say
  Plan plan;
};

// Errors: those of LoadJob, OverlayFlags, ToPlanRequest, ParseSpeedFlag, SpeedsOfNodes and
// Plan::Make.
[[nodiscard]] Result<PlanOutput> MakePlanOutput(const Flags& flags);

// --strict: kConfig with both batches unless the plan is exact.
[[nodiscard]] Status RequireExact(const Plan& plan);

}  // namespace gaccd
