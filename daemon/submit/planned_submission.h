// A command line of `gaccd submit`, checked and planned.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/submit/sbatch_script.h"

namespace gaccd {

struct PlannedSubmission {
  std::string name;
  std::string work_folder;  // in which the command runs
  // absolute: the run folder, or the parent of the run folders of a sweep
  std::string folder;
  std::vector<SweepTask> tasks;  // of a sweep; empty: one run in `folder`
  Job job;                       // from the job text, without the flags
  // For `gaccd train`, as in Flags, with absolute paths: a copy of the job is in the run folder.
  std::vector<std::string> train_arguments;
  std::string plan;  // one line for users; for a sweep: the plan of its first run

  [[nodiscard]] std::vector<std::string> RunFolders() const;
};

// Whether a run could train: its job, with the flags, and its plan.
using PlannedRunCheck = std::function<Status(const Job& job, const Plan& plan)>;

// Writes nothing. Returns the errors of `check`. kUsage, kConfig: flags that are missing,
// incompatible, or rejected by `gaccd plan` for one of the runs; a run folder that is unsafe or has
// an active run; the files STOP or HOLD in it.
[[nodiscard]] Result<PlannedSubmission> PlanSubmission(const Flags& flags,
                                                       const PlannedRunCheck& check);

}  // namespace gaccd
