// Calls of NCCL that must not hang: communicators are non-blocking, so that most calls return at
// once and are then asked whether they are done; those that may still block run beside the caller.
#pragma once

#include <chrono>

#include "collectives/comm/nccl_api.h"
#include "collectives/watchdog/deadline.h"
#include "collectives/watchdog/peer_processes.h"

namespace gaccd {

// How much of CommOptions::bound may pass inside NCCL while a communicator is made, split or ended:
// the others must still be waiting in the host communicator when this rank comes to say how it
// went.
inline constexpr double kNcclSetUpShare = 0.5;

// The pause between two questions whether NCCL is done: none at first, then 100 us.
class NcclPause {
 public:
  void Rest();

 private:
  int turns_ = 0;
};

// Asks ncclCommGetAsyncError until it is no longer ncclInProgress. kUnavailable, `what` in front:
// NCCL's error, the time limit, or, by their numbers, peers that have ended.
Status WaitForNccl(const NcclApi& api, ncclComm_t comm, std::chrono::nanoseconds limit,
                   const PeerProcesses& peers, std::string_view what);

// ncclCommAbort, so that kernels that wait for other ranks leave the GPU. Returns after `limit` in
// any case; a call that does not end is left to a thread of its own. Null: does nothing.
void AbortNccl(const NcclApi& api, ncclComm_t comm, std::chrono::nanoseconds limit);

// The same for ncclCommDestroy. REQUIRES: finalised.
void DestroyNccl(const NcclApi& api, ncclComm_t comm, std::chrono::nanoseconds limit);

}  // namespace gaccd
