// MakeCudaBackend() of a build without CUDA.
#include "daemon/engine/backend.h"

namespace gaccd {

Result<BackendPtr> MakeCudaBackend(Communicator& /*comm*/, const Model& /*model*/,
                                   const EngineOptions& /*options*/) {
  return Status(ErrorKind::kUnavailable,
                "device: expected a gaccd with CUDA, found one that was built without it");
}

}  // namespace gaccd
