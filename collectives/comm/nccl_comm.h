// The communicator between GPUs: NCCL for device buffers, and the communicator over which it was
// created (MPI) for host buffers: counts, digests, agreement.
#pragma once

#include <memory>

#include "collectives/comm/communicator.h"

namespace gaccd {

struct NcclApi;

struct NcclOptions {
  CommOptions comm;
  int device = 0;  // this rank's GPU, as counted by the CUDA runtime of this process
  // Several ranks share a GPU: for tests, slow. REQUIRES NcclSharingSettings() in the environment.
  bool gpu_sharing = false;
  // Registers memory from Allocate() as symmetric windows, for which NCCL has faster kernels within
  // a node. The kernels of NCCL 2.28 cannot be aborted: after the loss of a rank, the GPUs of the
  // others spin until their processes end. The same on all ranks.
  bool windows = false;
  // Maximum elements per NCCL call; larger buffers are cut into pieces, equally on all ranks. NCCL
  // is fastest with the largest messages, so comm.segment_elements is not used here.
  std::size_t message_elements = std::size_t{1} << 30;
  int ranks_per_root = 64;  // ranks that connect through one unique id
  // Time limit for the start of NCCL, which reads hundreds of megabytes from a cold disk. It is not
  // a wait for a peer, so comm.bound does not apply. `over` detects ranks lost meanwhile.
  std::chrono::milliseconds start_limit{180'000};
  const NcclApi* api = nullptr;  // null: LoadNccl()
};

// Collective over `over`, which must outlive the result; one rank per GPU. Operations on device
// buffers (MemoryKind::kCuda) are enqueued on the given stream and return at once. Poll() returns
// errors, also those of other ranks; call it after every wait for such a stream, since the stream
// completes aborted collectives as if they had succeeded. Allocate() returns device memory. A
// stream that is being captured is rejected. Sets the thread's current device to options.device.
// Barrier() synchronises hosts, not streams.
//
// The unique ids are exchanged over `over` together with a status: if one rank fails, all fail at
// once. kUnavailable if gaccd was built without CUDA; there is no silent fallback.
Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, const NcclOptions& options);

}  // namespace gaccd
