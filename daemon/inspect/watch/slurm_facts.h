// What SLURM knows about runs whose files do not show their state.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/inspect/watch/run_state.h"
#include "slurm/job_states.h"

namespace gaccd {

// Asks once for the jobs of all runs that wait, start, are stale, or stopped and are to be
// requeued; fills `slurm` and `gone_in_slurm`. The phase changes where SLURM knows better: a
// submitted job that runs is starting; a job that has ended, or that SLURM does not know, is
// stopped, failed or done. Without an answer nothing changes.
void AddSlurmFacts(std::span<RunState> runs, const JobFinder& find = FindJobStates);

// For who looks again and again: asks SLURM at most every 30 s, and at once for other jobs.
class PatientFinder {
 public:
  std::optional<JobStates> operator()(std::span<const std::string> ids);

 private:
  std::optional<std::chrono::steady_clock::time_point> asked_;
  std::vector<std::string> ids_;
  std::optional<JobStates> answer_;
};

// Done, failed, or stopped and not to be requeued: nothing more is to come. After AddSlurmFacts().
[[nodiscard]] bool HasEndedForGood(const RunState& state);

}  // namespace gaccd
