// Compiled instead of the NCCL communicator where it is not part of the build.
#include "collectives/base/strings.h"
#include "collectives/comm/nccl_comm.h"

namespace gaccd {

Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, int device,
                                               const CommOptions& /*options*/) {
  return Status(ErrorKind::kUnavailable,
                StrCat("this gaccd was built without NCCL: rank ", over.rank(), " of ", over.size(),
                       " cannot reduce on GPU ", device, "; use device 'cpu' or another build"));
}

}  // namespace gaccd
