// What would keep a submitted job from ever starting, or make it fail as soon as it starts: found
// on the login node, before it waits for days.
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

// What sbatch takes: an argument after -- overrides the flag. Empty: its default.
[[nodiscard]] std::string PartitionOf(const Flags& flags);

// In seconds; nothing where neither the flags nor the arguments after -- give one, or for no limit.
// kUsage for what is no time limit.
[[nodiscard]] Result<std::optional<std::int64_t>> GivenTimeLimit(const Flags& flags);

// A warning each: partition, nodes and time limit that SLURM can never give (StartWarnings()), a
// --mem that is too small for the weights, gradients and state of the ranks of a node, and files of
// data and weights that are not there. Warnings only: the nodes may have files that this one has
// not. `gpus`: the weights are in GPU memory. Reads file names. Errors: GivenTimeLimit().
[[nodiscard]] Result<std::vector<std::string>> StartProblems(const Flags& flags, const Job& job,
                                                             const SiteAnswers& site, bool gpus);

}  // namespace gaccd
