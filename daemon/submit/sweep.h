// The runs of `gaccd submit --array --set FIELD=VALUE,VALUE`: all combinations of the values.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

struct SweepTask {
  std::string folder;                        // its name, "0-optimizer.lr=0.1"
  std::vector<std::string> train_arguments;  // "--set", "optimizer.lr=0.1"
  std::vector<JobField> job_fields;          // the same for the plan
};

inline constexpr std::size_t kMaxSweepTasks = 1000;

// The values of the last field change fastest. Folder names contain only [A-Za-z0-9._=,-], sort in
// the order of the tasks, and are unique. Empty if nothing is swept. kUsage: more than
// kMaxSweepTasks.
[[nodiscard]] Result<std::vector<SweepTask>> MakeSweep(const std::vector<SweptField>& fields);

}  // namespace gaccd
