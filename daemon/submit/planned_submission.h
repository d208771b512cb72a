// What a command line of `gaccd submit` asks for, checked and planned.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"
#include "daemon/submit/sweep.h"

namespace gaccd {

struct PlannedSubmission {
  std::string name;
  std::string folder;            // absolute: of the run, or of the runs of a sweep
  std::vector<SweepTask> tasks;  // of a sweep; empty: one run, in `folder`
  Job job;                       // as the job text has it, without the flags
  std::string plan;              // a line for people; of a sweep: of its first run

  [[nodiscard]] std::vector<std::string> RunFolders() const;
};

// Whether a run could train: its job, with the flags, and its plan.
using PlannedRunCheck = std::function<Status(const Job& job, const Plan& plan)>;

// Writes nothing. Errors of `check`; kUsage, kConfig: flags that are missing, are incompatible, or
// that `gaccd plan` refuses for one of the runs; a run folder that is not safe or whose run lives;
// the files STOP or HOLD in it.
[[nodiscard]] Result<PlannedSubmission> PlanSubmission(const Flags& flags,
                                                       const PlannedRunCheck& check);

// From the current folder, without . and .. in it.
[[nodiscard]] std::string AbsolutePath(const std::string& path);

}  // namespace gaccd
