// Replaces gpus.cc in builds without CUDA.
#include "collectives/bootstrap/gpus.h"

namespace gaccd {

Result<std::vector<GpuFacts>> FindGpus() {
  return Status(ErrorKind::kUnavailable, "this gaccd was built without CUDA: it uses no GPU");
}

}  // namespace gaccd
