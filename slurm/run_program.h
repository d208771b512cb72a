// Runs a program such as sbatch and waits for its end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

struct ProgramOutput {
  int exit = 0;  // 128 + the signal that ended it
  std::string out;
  std::string err;
};

// Searches PATH for the first word; `input` is the standard input. Truncates each output to 1 MiB.
// SQUEUE_*, SACCT_* and SINFO_*, a user's filters of queries, are removed from the environment.
// Inside a SLURM job, SLURM_* (except SLURM_CONF), PMI*_*, OMPI_* and PRTE_* are removed,
// too, so that a submitted job is independent. kOs: the program cannot be started, or was
// killed after `limit`. REQUIRES: no other thread changes the environment.
[[nodiscard]] Result<ProgramOutput> RunProgram(const std::vector<std::string>& words,
                                               const std::string& input,
                                               std::chrono::seconds limit);

}  // namespace gaccd
