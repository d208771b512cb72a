// Attention and convolutions by cuDNN: the DnnLibrary that training on GPUs uses.
#pragma once

#include "collectives/base/result.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

// What starts cuDNN on a GPU. kUnavailable, with what is missing, when gaccd was built without
// cudnn-frontend, or cuDNN is not found or too old (cudnn_api.h). Touches no GPU.
Result<DnnOpener> FindCudnn();

}  // namespace gaccd
