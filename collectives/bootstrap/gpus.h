// Which GPU is whose. Device numbers are those of the CUDA runtime of one process
// (CUDA_VISIBLE_DEVICES changes them); the UUID is the GPU's own name, the same for all processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct GpuFacts {
  int device = 0;
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-8a1b2c3d-...", as nvidia-smi prints it
  std::string pci;   // "0000:1b:00.0"
  std::int64_t memory_bytes = 0;
  int compute_capability = 0;  // 90 = sm_90
};

// The GPUs that this process may use. kUnavailable, with the reason: built without CUDA, no driver,
// a driver older than the CUDA runtime, no GPU. Initialises CUDA on none of them.
Result<std::vector<GpuFacts>> FindGpus();

// This rank's GPU: the one of its local rank, or the only one where SLURM shows each task its own.
// Collective. kConfig on every rank alike, naming ranks, hosts and GPUs: fewer GPUs than ranks on a
// node, or one GPU for two ranks, unless `allow_sharing`; a rank without any GPU is kUnavailable.
Result<GpuFacts> AssignGpu(Communicator& over, bool allow_sharing);

}  // namespace gaccd
