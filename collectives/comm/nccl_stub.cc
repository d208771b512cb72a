// Replaces the NCCL communicator in builds without CUDA.
#include "collectives/base/strings.h"
#include "collectives/comm/nccl_comm.h"

namespace gaccd {

Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, const NcclOptions& options) {
  return Status(
      ErrorKind::kUnavailable,
      StrCat("this gaccd was built without NCCL: rank ", over.rank(), " of ", over.size(),
             " cannot reduce on GPU ", options.device, "; use --device=cpu or another build"));
}

}  // namespace gaccd
