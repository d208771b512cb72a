// Which of the GPUs that a rank sees is its own, and whether the choices of all ranks go together.
// Without CUDA, so that it is tested everywhere: `found` is what FindGpus() says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/bootstrap/gpus.h"

namespace gaccd {

// The GPU of this rank alone:
//   GPUs that it sees      local rank l of `local_size`
//   one                    that one: SLURM may show each task its own
//   at least l + 1         the l-th
//   fewer                  shared: number l modulo GPUs; else kConfig with both numbers
// REQUIRES: gpus is not empty.
Result<GpuFacts> ChooseGpu(std::span<const GpuFacts> gpus, const Topology& topology,
                           bool allow_sharing);

// kConfig when two ranks have one GPU: "rank 0 on n0 and rank 3 on n0 both use GPU 0 (NVIDIA H200,
// GPU-8a1b...)". gpus: by rank.
[[nodiscard]] Status CheckDistinctGpus(std::span<const GpuFacts> gpus, const Topology& topology);

// What is seldom meant: ranks of a node that leave some of the GPUs they see to nobody. Empty:
// none.
[[nodiscard]] std::string UnusedGpus(std::int64_t gpus, std::int64_t local_size);

// Collective: AssignGpu() for what this rank found. An error of one rank is the error of all.
Result<GpuFacts> AgreeOnGpu(Communicator& over, const Result<std::vector<GpuFacts>>& found,
                            bool allow_sharing);

}  // namespace gaccd
