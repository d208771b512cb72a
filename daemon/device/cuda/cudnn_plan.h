// Attention by cuDNN: the SdpaLibrary that training on GPUs uses.
#pragma once

#include "collectives/base/result.h"
#include "daemon/device/cuda/sdpa.h"

namespace gaccd {

// More workspace than this is not taken. On Hopper and Ampere the gradient in a fixed order keeps
// two bytes for every pair of rows: 1.6 GB for 64 sequences of 1024 rows with 12 heads.
inline constexpr std::int64_t kMaxSdpaWorkspace = std::int64_t{8} << 30;

// What starts cuDNN on a GPU. kUnavailable, with what is missing, when gaccd was built without
// cudnn-frontend, or cuDNN is not found or too old (cudnn_api.h). Touches no GPU.
Result<SdpaOpener> FindCudnn();

}  // namespace gaccd
