// Finds on the login node why a submitted job would never start or would fail at its start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/submit/slurm_site.h"

namespace gaccd {

// The partition that sbatch uses: an argument after -- overrides the flag. Empty: its default.
[[nodiscard]] std::string GetPartition(const Flags& flags);

// In seconds; empty if neither the flags nor the arguments after -- set one, or for no limit.
// kUsage if invalid.
[[nodiscard]] Result<std::optional<std::int64_t>> GivenTimeLimit(const Flags& flags);

// One warning each: partition, nodes and time limit that SLURM can never satisfy (StartWarnings()),
// a --mem that is too small for the weights, gradients and state of the ranks of a node, and
// missing files of data and weights. Only warnings: nodes may have files that this one lacks. gpus:
// the weights are in GPU memory. Errors: GivenTimeLimit().
[[nodiscard]] Result<std::vector<std::string>> StartProblems(const Flags& flags, const Job& job,
                                                             const SiteOutputs& site, bool gpus);

}  // namespace gaccd
