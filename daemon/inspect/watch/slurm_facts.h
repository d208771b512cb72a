// Queries SLURM about runs whose files do not determine their state.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/inspect/watch/run_state.h"
#include "slurm/commands.h"

namespace gaccd {

// One query for the jobs of all runs that are submitted, starting without ranks, stale, stopped
// and to be requeued, or ended with 93. Sets `slurm` and `gone_in_slurm`, and corrects the phase: a
// submitted job that runs is starting; a job that ended, or is unknown to SLURM, is stopped, failed
// or done. No change if the query fails.
void AddSlurmFacts(std::span<RunState> runs, const JobFinder& find = FindJobStates);

// For repeated calls: queries SLURM at most every 30 s, and immediately for other jobs.
class ThrottledFinder {
 public:
  std::optional<JobStates> operator()(std::span<const std::string> ids);

 private:
  std::optional<std::chrono::steady_clock::time_point> asked_;
  std::vector<std::string> ids_;
  std::optional<JobStates> answer_;
};

// Done, failed, or stopped and not to be requeued. REQUIRES: AddSlurmFacts() was called.
[[nodiscard]] bool IsPermanentlyEnded(const RunState& state);

}  // namespace gaccd
