// The GPUs of a machine. Device numbers are those of the CUDA runtime of one process and depend on
// CUDA_VISIBLE_DEVICES; the UUID identifies the GPU for all processes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct GpuFacts {
  int device = 0;
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-8a1b2c3d-...", as printed by nvidia-smi
  std::string pci;   // "0000:1b:00.0"
  std::int64_t memory_bytes = 0;
  int compute_capability = 0;  // 90 = sm_90
};

// The GPUs visible to this process. kUnavailable, with the reason: built without CUDA, no driver, a
// driver older than the CUDA runtime, no GPU. Initialises CUDA on none of them.
Result<std::vector<GpuFacts>> FindGpus();

// Assignment of GPUs to ranks, and a check that the choices of all ranks are compatible. Does not
// use CUDA, so that it can be tested without: `gpus` are those of FindGpus().

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
// or one GPU for two ranks, unless `allow_sharing`. REQUIRES: gpus is not empty.
Result<GpuFacts> AssignGpu(Communicator& over, std::span<const GpuFacts> gpus, bool allow_sharing);

}  // namespace gaccd
