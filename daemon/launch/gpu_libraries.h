// Libraries that ranks on GPUs need besides the driver. Loaded on demand, so this works on machines
// without them.
#pragma once

#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/device/cuda/versions.h"

namespace gaccd {

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
