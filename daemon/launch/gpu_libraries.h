// The libraries that ranks on GPUs need besides a driver. They are loaded only when they are asked
// for, so everything here works on a machine that has none of them.
#pragma once

#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/device/cuda/versions.h"

namespace gaccd {

// CudaLibraries(), then NCCL; empty when gaccd was built without CUDA. Starts nothing on a GPU.
[[nodiscard]] std::vector<LibraryVersions> GpuLibraries();

// Loads what a training on GPUs calls: cuBLASLt, and NCCL when there are several ranks.
// kUnavailable when it is not there or older than what gaccd was compiled with.
Status CheckGpuLibraries(bool with_nccl);

// cuDNN, for attention and convolutions in bf16 and fp16. kUnavailable, with what is missing, when
// it cannot be used.
Result<DnnOpener> FindDnnLibrary();

// The same, also when NVRTC is not found, with which cuDNN compiles its kernels.
Status CheckDnnLibrary();

}  // namespace gaccd
