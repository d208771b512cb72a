// Checks whether ranks are compatible. Pure functions of their reports.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "daemon/launch/rank_report.h"

namespace gaccd {

struct RankCompatibility {
  std::vector<std::string> errors;    // prevent a run; each names its ranks
  std::vector<std::string> warnings;  // allow a run, but slowly
};

struct RankCheckOptions {
  bool gpus_matter = true;  // false for --device=cpu
  bool allow_gpu_sharing = false;
};

// errors                                        warnings
//   other build of gaccd                          other model of GPU, other driver
//   other version of MPI, oneDNN, and on GPUs     GPUs that no rank can use
//     of CUDA, cuBLASLt, cuDNN, NCCL              one visible GPU where SLURM gave the node more
//   ranks with and without a usable GPU           more GPUs than ranks on a node
//   fewer GPUs than ranks on a node               fewer cores than SLURM_CPUS_PER_TASK
//   two ranks on one GPU                          limited locked memory, with several nodes
//                                                 cuDNN cannot compute attention
//                                                 GPUs, but no rank can use one
// reports: by rank, not empty. "Other" means different from the most frequent value.
[[nodiscard]] RankCompatibility CheckRanks(std::span<const RankReport> reports,
                                           const RankCheckOptions& options);

}  // namespace gaccd
