// The communicator between GPUs: NCCL for device buffers, and the communicator over which it was
// bootstrapped (MPI) for host buffers: counts, digests, agreement.
#pragma once

#include <memory>

#include "collectives/comm/communicator.h"

namespace gaccd {

struct NcclApi;

struct NcclOptions {
  CommOptions comm;
  int device = 0;                // this rank's GPU, as the CUDA runtime of this process counts
  bool gpu_sharing = false;      // several ranks on one GPU: for tests, slow
  const NcclApi* api = nullptr;  // null: the library, by LoadNccl()
};

// Collective over `over`, which must outlive the result; one rank per GPU. Device buffers
// (MemoryKind::kCuda) are enqueued on the stream that is passed in: the call returns at once, and
// Poll() tells errors, those of other ranks too. Allocate() gives device memory. The ranks' ids go
// out over `over` together with a status: if one rank fails, all fail, at once. kUnavailable when
// gaccd was built without CUDA: nothing is replaced by a slower way in silence.
Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, const NcclOptions& options);

}  // namespace gaccd
