// JobChanges: what a job has otherwise than the one that was saved, by what that means for a run
// that resumes: `resume` of each field of proto/job.proto.
#pragma once

#include <string>

#include "daemon/config/job.h"

namespace gaccd {

// For people: "optimizer.lr: 0.1 -> 0.05; epochs: 2 -> 4". Empty: nothing.
struct JobChanges {
  std::string other_run;  // of fields that are SAME
  std::string reported;   // of fields that are REPORTED
};

// Paths that name the same file are equal, as are class names where `was` has none.
[[nodiscard]] JobChanges CompareJobs(Job was, const Job& now);

}  // namespace gaccd
