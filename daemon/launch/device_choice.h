// The device on which all ranks compute. Decided collectively: no rank uses a CPU just because it
// alone has no GPU.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/bootstrap/gpus.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/device/cuda/versions.h"

namespace gaccd {

// GPUs found on one rank, without initialising them.
struct GpuProbe {
  std::vector<GpuFacts> gpus;  // usable by this process
  std::string problem;         // why it cannot compute on them; empty: it can
};
// Checks GPUs, the driver, cuBLASLt, and NCCL if the world has several ranks.
[[nodiscard]] GpuProbe ProbeGpus(int world);

// Input of DecideDevice for one rank.
struct RankGpu {
  std::string host;
  std::string name;     // "NVIDIA H200"; empty: none
  std::string problem;  // empty: usable
};

struct DeviceChoice {
  Device device = Device::kCpu;     // kCpu or kCuda
  std::optional<GpuFacts> gpu;      // for kCuda: this rank's GPU
  std::string text = "device cpu";  // for users, with the reason
  std::string warning = {};         // for kCuda: GPUs of this rank's node that no rank uses
};

// ranks: by rank. wanted:
//   kCpu    CPUs
//   kCuda   GPUs; kConfig, with their names, if ranks have none
//   kAuto   GPUs if every rank has one, CPUs if none has; kConfig, with the ranks of the smaller
//           part and their reasons, if only some have one
// The result does not include `gpu`.
Result<DeviceChoice> DecideDevice(Device wanted, std::span<const RankGpu> ranks);

// Collective, the same result on all ranks: gathers the probes, decides, and on GPUs assigns a GPU
// to every rank (AssignGpu). `mine` is ignored if `wanted` is kCpu.
Result<DeviceChoice> ChooseDevice(Communicator& over, Device wanted, bool allow_sharing,
                                  const GpuProbe& mine);

// kConfig, with their names, if the job's model has functions without a GPU kernel. Needs neither a
// GPU nor the data: called at plan time.
Status CheckModelOnGpu(const Job& job);

// Whether a library computes attention and convolutions of a job on GPUs. The same on all ranks, as
// otherwise the fast ranks would wait for the slow ones.

// The operations of a job's model for which a library is used.
struct DnnWork {
  bool attention = false, convolution = false;
};

struct DnnChoice {
  DnnFactory library = nullptr;  // null: gaccd's own kernels
  std::string text;   // for users, with the reason; empty: the job has no such operations
  bool slow = false;  // the text is a warning: cuDNN would be faster but is not available
};

// Needs no data. Errors: the model is invalid.
Result<DnnWork> FindDnnWork(const Job& job);

// Collective. bf16, fp16: cuDNN if every rank has it, otherwise gaccd's own kernels, which are
// slower, on all ranks. f32: gaccd's own kernels. mine: FindDnnLibrary(). REQUIRES: the job has
// such operations.
Result<DnnChoice> ChooseDnn(Communicator& over, const DnnWork& work, Precision precision,
                            const Result<DnnFactory>& mine);

// Checks whether all ranks can compute bf16 products on their CPUs.

// Collective, the same result on all ranks: text for users with the instructions used, "products in
// bf16 by AVX512_BF16". mine: DetectCpuBf16(). kConfig, with a rank and its capability, if a CPU
// has neither AVX512_BF16 nor AMX; with allow_emulation only if oneDNN cannot emulate them either.
Result<std::string> CheckBf16OnCpus(Communicator& over, CpuBf16 mine, bool allow_emulation);

// Floating-point operations per second of dense matrix products according to NVIDIA, for a GPU with
// this name; 0 if not known, and for a part of a GPU (MIG).
[[nodiscard]] double PeakFlops(std::string_view gpu_name, const Numerics& numerics);

// Libraries that ranks on GPUs need besides the driver. Loaded on demand, so this works on machines
// without them.

// CudaLibraries() and NCCL; empty in builds without CUDA. Uses no GPU.
[[nodiscard]] std::vector<LibraryVersions> GpuLibraries();

// Loads the libraries for training on GPUs: cuBLASLt, and NCCL if there are several ranks.
// kUnavailable if one is missing or older than the version that gaccd was compiled with.
Status CheckGpuLibraries(bool with_nccl);

// cuDNN, for attention and convolutions in bf16 and fp16. kUnavailable, with the reason, if it
// cannot be used.
Result<DnnFactory> FindDnnLibrary();

// FindDnnLibrary(), and a check for NVRTC, with which cuDNN compiles its kernels.
Status CheckDnnLibrary();

}  // namespace gaccd
