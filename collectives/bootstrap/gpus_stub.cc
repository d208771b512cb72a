// Replaces gpus.cc in builds without CUDA.
#include "collectives/bootstrap/gpu_choice.h"
#include "collectives/bootstrap/gpus.h"

namespace gaccd {

Result<std::vector<GpuFacts>> FindGpus() {
  return Status(ErrorKind::kUnavailable, "this gaccd was built without CUDA: it uses no GPU");
}

Result<GpuFacts> AssignGpu(Communicator& over, bool allow_sharing) {
  return AgreeOnGpu(over, FindGpus(), allow_sharing);
}

}  // namespace gaccd
