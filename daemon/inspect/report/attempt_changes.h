// Changes from one attempt of a run to the next.
#pragma once

#include <string>
#include <vector>

#include "daemon/inspect/report/report_data.h"
#include "daemon/inspect/watch/attempts.h"

namespace gaccd {

// Changes of env.json, sorted, without variables that differ at every start (SLURM_RESTART_COUNT),
// and of the lines of job.txtpb. Empty if a file cannot be read.
[[nodiscard]] std::vector<Change> EnvironmentChanges(const Attempt& before, const Attempt& after);
[[nodiscard]] std::vector<Change> JobTextChanges(const Attempt& before, const Attempt& after);
// Changes between two run_start events: versions, nodes, devices.
[[nodiscard]] std::vector<Change> StartChanges(const Event& before, const Event& after);

// The non-empty lines that are not in both texts, in order, first those of `before`.
[[nodiscard]] std::vector<Change> LineChanges(const std::string& before, const std::string& after);

}  // namespace gaccd
