// The communicator between GPUs: NCCL for device buffers, and the communicator over which it was
// bootstrapped (MPI) for host buffers: counts, digests, agreement.
#pragma once

#include <memory>

#include "collectives/comm/communicator.h"

namespace gaccd {

struct NcclApi;

struct NcclOptions {
  CommOptions comm;
  int device = 0;  // this rank's GPU, as the CUDA runtime of this process counts
  // Several ranks on one GPU: for tests, slow. REQUIRES NcclSharingSettings() in the environment.
  bool gpu_sharing = false;
  // What Allocate() gives becomes a symmetric window, for which NCCL has faster kernels within a
  // node. Those of NCCL 2.28 never look whether they are to stop: when a rank is lost, the GPUs of
  // the others spin until their processes end. The same on all ranks.
  bool windows = false;
  // Elements of one call of NCCL; larger buffers are cut into pieces, alike on all ranks. NCCL is
  // fastest with the largest messages, so that comm.segment_elements is not used here.
  std::size_t message_elements = std::size_t{1} << 30;
  int ranks_per_root = 64;  // ranks that find each other through one unique id
  // For NCCL to start, which reads hundreds of megabytes from a cold disk: not a wait for a peer,
  // so that comm.bound is no measure for it. A rank that is lost meanwhile is noticed by `over`.
  std::chrono::milliseconds start_limit{180'000};
  const NcclApi* api = nullptr;  // null: the library, by LoadNccl()
};

// Collective over `over`, which must outlive the result; one rank per GPU. Device buffers
// (MemoryKind::kCuda) are enqueued on the stream that is passed in: the call returns at once, and
// Poll() returns errors, also those of other ranks; call it after every wait for such a stream,
// since collectives that were aborted leave the stream as if they had been done. Allocate() gives
// device memory. A stream that is being captured is refused. `options.device` becomes the thread's
// current device. Barrier() is one of the hosts and waits for no stream.
//
// The ranks' ids go out over `over` together with a status: if one rank fails, all fail, at once.
// kUnavailable when gaccd was built without CUDA: nothing is replaced by a slower way in silence.
Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, const NcclOptions& options);

}  // namespace gaccd
