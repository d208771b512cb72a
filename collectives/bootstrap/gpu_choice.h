// Assignment of GPUs to ranks, and a check that the choices of all ranks are compatible. Does not
// use CUDA, so that it can be tested without: `found` is the result of FindGpus().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/bootstrap/gpus.h"

namespace gaccd {

// The GPU of this rank:
//   visible GPUs           choice of local rank l of `local_size`
//   one                    that one: SLURM may show each task only its own
//   at least l + 1         number l
//   fewer                  shared: number l modulo GPUs; without sharing kConfig with both numbers
// REQUIRES: gpus is not empty.
Result<GpuFacts> ChooseGpu(std::span<const GpuFacts> gpus, const Topology& topology,
                           bool allow_sharing);

// kConfig if two ranks use the same GPU: "rank 0 on n0 and rank 3 on n0 both use GPU 0 (NVIDIA
// H200, GPU-8a1b...)". gpus: by rank.
[[nodiscard]] Status CheckDistinctGpus(std::span<const GpuFacts> gpus, const Topology& topology);

// A warning if the ranks of a node leave visible GPUs unused, which is rarely intended. Empty: none
// unused.
[[nodiscard]] std::string UnusedGpus(std::int64_t gpus, std::int64_t local_size);

// This rank's GPU: that of its local rank, or the only one if SLURM shows each task only its own.
// Collective. kConfig on every rank, with ranks, hosts and GPUs: fewer GPUs than ranks on a node,
// or one GPU for two ranks, unless `allow_sharing`; kUnavailable: a rank without a GPU.
Result<GpuFacts> AssignGpu(Communicator& over, const Result<std::vector<GpuFacts>>& found,
                           bool allow_sharing);

}  // namespace gaccd
