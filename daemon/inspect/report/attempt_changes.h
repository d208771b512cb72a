// What changed from one attempt of a run to the next one.
#pragma once

#include <string>
#include <vector>

#include "daemon/inspect/report/report_data.h"
#include "daemon/inspect/watch/attempts.h"

namespace gaccd {

// In env.json, without what differs at every start (SLURM_RESTART_COUNT), and of the lines of
// job.txtpb. What cannot be read has no changes. Sorted.
[[nodiscard]] std::vector<Change> EnvironmentChanges(const Attempt& before, const Attempt& after);
[[nodiscard]] std::vector<Change> JobChanges(const Attempt& before, const Attempt& after);
// Of two run_start events: versions, nodes, devices.
[[nodiscard]] std::vector<Change> StartChanges(const Event& before, const Event& after);

// The lines of two texts that are not in both, but empty ones: those of `before` first, each in
// their order.
[[nodiscard]] std::vector<Change> LineChanges(const std::string& before, const std::string& after);

}  // namespace gaccd
