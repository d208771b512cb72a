// JobChanges: differences between a job and the saved one, by their meaning for a run that resumes:
// the option `resume` of each field in proto/job.proto.
#pragma once

#include <string>

#include "daemon/config/job.h"

namespace gaccd {

// Text for users: "optimizer.lr: 0.1 -> 0.05; epochs: 2 -> 4". Empty: no differences.
struct JobChanges {
  std::string other_run;  // differences of fields that are SAME
  std::string reported;   // differences of fields that are REPORTED
};

// Paths of the same file are equal. Names of classes or columns are equal if `was` has none.
[[nodiscard]] JobChanges CompareJobs(Job was, const Job& now);

}  // namespace gaccd
