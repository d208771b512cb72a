// Attention and convolutions by cuDNN: the DnnLibrary used for training on GPUs.
#pragma once

#include "collectives/base/result.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

// Returns the function that starts cuDNN on a GPU. kUnavailable, with the reason, if gaccd was
// built without cudnn-frontend, or cuDNN is not found or too old (cudnn_api.h). Uses no GPU.
Result<DnnFactory> FindCudnn();

}  // namespace gaccd
