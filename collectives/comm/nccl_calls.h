// Calls of NCCL that must not hang: communicators are non-blocking, so that most calls return at
// once and are then asked whether they are done; those that may still block run concurrently with
// the caller.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/comm/nccl_api.h"
#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/deadline/peer_processes.h"

namespace gaccd {

// How much of CommOptions::bound may pass inside NCCL while a communicator is split or ended: the
// others must still be waiting in the host communicator when this rank comes to say how it went.
inline constexpr double kNcclSetUpShare = 0.5;

// Asks ncclCommGetAsyncError until it is no longer ncclInProgress. kUnavailable, `what` in front:
// NCCL's error, the time limit, or, by their numbers, peers that have ended.
Status WaitForNccl(const NcclApi& api, ncclComm_t comm, std::chrono::nanoseconds limit,
                   const PeerProcesses& peers, std::string_view what);

// A call that ends a communicator, in a thread of its own, because it blocks, and may do so for
// ever.
class NcclEnd {
 public:
  NcclEnd() = default;  // of no communicator: over
  // ncclCommAbort: kernels that wait for other ranks end, but for symmetric ones
  // (NcclOptions::windows): those never look, and the call waits for them. comm may be null.
  static NcclEnd Abort(const NcclApi& api, ncclComm_t comm);
  // ncclCommDestroy. REQUIRES: finalised.
  static NcclEnd Destroy(const NcclApi& api, ncclComm_t comm);

  // Waits until the call is over, but no longer than `limit`. Whether it is over.
  bool Wait(std::chrono::nanoseconds limit) const;

 private:
  struct Over;
  static NcclEnd Start(ncclResult_t (*call)(ncclComm_t), ncclComm_t comm);

  std::shared_ptr<Over> over_;
};

}  // namespace gaccd
