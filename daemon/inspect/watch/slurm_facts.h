// What SLURM knows about runs whose files do not show their state.
#pragma once

#include <span>

#include "daemon/inspect/watch/run_state.h"
#include "slurm/job_states.h"

namespace gaccd {

// Asks once for the jobs of all runs that wait, start, are stale, or stopped and are to be
// requeued; fills `slurm` and `gone_in_slurm`. The phase changes where SLURM knows better: a
// submitted job that runs is starting; a job that has ended, or that SLURM does not know, is
// stopped, failed or done. Without an answer nothing changes.
void AddSlurmFacts(std::span<RunState> runs, const JobFinder& find = FindJobStates);

}  // namespace gaccd
