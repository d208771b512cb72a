// Which device all ranks compute on. Decided by all together: no rank takes a CPU because only it
// has no GPU.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/bootstrap/gpus.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"

namespace gaccd {

// What one rank finds by itself. Touches no GPU.
struct GpuProbe {
  std::vector<GpuFacts> gpus;  // that this process may use
  std::string problem;         // why it cannot compute on them; empty: it can
};
// GPUs, a driver that knows them, cuBLASLt, and NCCL when the world has several ranks.
[[nodiscard]] GpuProbe ProbeGpus(int world);

// What DecideDevice needs to know of a rank.
struct RankGpu {
  std::string host;
  std::string name;     // "NVIDIA H200"; empty when there is none
  std::string problem;  // empty: usable
};

struct DeviceChoice {
  Device device = Device::kCpu;     // kCpu or kCuda
  std::optional<GpuFacts> gpu;      // on kCuda: this rank's
  std::string text = "device cpu";  // for people, with the reason
  std::string warning = {};         // on kCuda: GPUs of this rank's node that no rank uses
};

// By rank. `wanted`:
//   kCpu    CPUs
//   kCuda   GPUs; kConfig, naming them, when ranks have none
//   kAuto   GPUs when every rank has one, CPUs when none has; kConfig, naming the ranks of the
//           smaller part with their reasons, when some have one and some have none
// The result is without `gpu`.
Result<DeviceChoice> DecideDevice(Device wanted, std::span<const RankGpu> ranks);

// Collective, the same result on all ranks: gathers what the ranks found, decides, and on GPUs
// gives every rank its own (AssignGpu). `mine` is not looked at when `wanted` is kCpu.
Result<DeviceChoice> ChooseDevice(Communicator& over, Device wanted, bool allow_sharing,
                                  const GpuProbe& mine);

// kConfig, naming them, when the job's model has functions that GPUs cannot compute. Needs neither
// a GPU nor the data: at plan time.
Status CheckModelOnGpu(const Job& job);

}  // namespace gaccd
