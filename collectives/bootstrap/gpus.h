// The GPUs of a machine. Device numbers are those of the CUDA runtime of one process and depend on
// CUDA_VISIBLE_DEVICES; the UUID identifies the GPU for all processes.
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
  std::string uuid;  // "GPU-8a1b2c3d-...", as printed by nvidia-smi
  std::string pci;   // "0000:1b:00.0"
  std::int64_t memory_bytes = 0;
  int compute_capability = 0;  // 90 = sm_90
};

// The GPUs visible to this process. kUnavailable, with the reason: built without CUDA, no driver, a
// driver older than the CUDA runtime, no GPU. Initialises CUDA on none of them.
Result<std::vector<GpuFacts>> FindGpus();

}  // namespace gaccd
