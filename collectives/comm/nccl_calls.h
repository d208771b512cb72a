// NCCL calls that must not hang. Communicators are non-blocking, so most calls return at once and
// are polled; those that may still block run on another thread.
#pragma once

#include <chrono>
#include <memory>

#include "collectives/comm/nccl_api.h"
#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/deadline/peer_processes.h"

namespace gaccd {

// The share of CommOptions::bound for NCCL calls while a communicator is split or ended: the other
// ranks must still be waiting in the host communicator when this rank reports the result.
inline constexpr double kNcclSetUpShare = 0.5;

// Polls ncclCommGetAsyncError until it is no longer ncclInProgress. kUnavailable, with prefix
// `what`: NCCL's error, the time limit, or the numbers of peers that have ended.
Status WaitForNccl(const NcclApi& api, ncclComm_t comm, std::chrono::nanoseconds limit,
                   const PeerProcesses& peers, std::string_view what);

// A call that ends a communicator, on a separate thread, because it blocks and may never return.
class NcclEnd {
 public:
  NcclEnd() = default;  // no communicator: already over
  // ncclCommAbort: kernels that wait for other ranks end, except symmetric ones
  // (NcclOptions::windows), which never check for it, and the call waits for them. comm may be
  // null.
  static NcclEnd Abort(const NcclApi& api, ncclComm_t comm);
  // ncclCommDestroy. REQUIRES: the communicator is finalised.
  static NcclEnd Destroy(const NcclApi& api, ncclComm_t comm);

  // Waits up to `limit` and returns whether the call is over.
  bool Wait(std::chrono::nanoseconds limit) const;

 private:
  struct Over;
  static NcclEnd Start(ncclResult_t (*call)(ncclComm_t), ncclComm_t comm);

  std::shared_ptr<Over> over_;
};

}  // namespace gaccd
