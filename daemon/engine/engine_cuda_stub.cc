// MakeCudaEngine() of a gaccd without CUDA.
#include "daemon/engine/engine.h"

namespace gaccd {

Result<std::unique_ptr<Engine>> MakeCudaEngine(Communicator& /*comm*/, const Model& /*model*/,
                                               const EngineOptions& /*options*/) {
  return Status(ErrorKind::kUnavailable,
                "device: expected a gaccd with CUDA, found one that was built without it");
}

}  // namespace gaccd
