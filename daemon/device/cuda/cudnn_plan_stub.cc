// For builds without cudnn-frontend.
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

Result<DnnFactory> FindCudnn() {
  return Status(
      ErrorKind::kUnavailable,
      "this gaccd was built without cudnn-frontend, which tools/dev/cudnn_frontend fetches");
}

}  // namespace gaccd
