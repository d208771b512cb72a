// Another program, run to its end: sbatch and its like.
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

// The first word is looked for on PATH; `input` is its standard input. Each output is cut at 1 MiB.
// Inside a job of SLURM it gets no SLURM_*, PMI*_*, OMPI_* and PRTE_* but SLURM_CONF: what it
// submits is a job of its own. kOs: it cannot be started, or had not ended after `limit`, when it
// is killed. Not to be called while another thread changes the environment.
[[nodiscard]] Result<ProgramOutput> RunProgram(const std::vector<std::string>& words,
                                               const std::string& input,
                                               std::chrono::seconds limit);

}  // namespace gaccd
