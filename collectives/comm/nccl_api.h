// The NCCL functions used by gaccd, as a table: the library is loaded on demand, so that the binary
// starts without it, and tests can replace it. Sums are plain: ncclAvg and ncclRedOpCreatePreMulSum
// are omitted on purpose, as summed values already have their weights.
#pragma once

#include <nccl.h>

#include <chrono>
#include <memory>
#include <string_view>

#include "collectives/base/result.h"
#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/deadline/peer_processes.h"

namespace gaccd {

struct NcclApi {
  decltype(&::ncclGetVersion) GetVersion;
  decltype(&::ncclGetUniqueId) GetUniqueId;
  decltype(&::ncclCommInitRankConfig) CommInitRankConfig;
  decltype(&::ncclCommInitRankScalable) CommInitRankScalable;
  decltype(&::ncclCommFinalize) CommFinalize;
  decltype(&::ncclCommDestroy) CommDestroy;
  decltype(&::ncclCommAbort) CommAbort;
  decltype(&::ncclCommGetAsyncError) CommGetAsyncError;
  decltype(&::ncclGetErrorString) GetErrorString;
  decltype(&::ncclGetLastError) GetLastError;
  decltype(&::ncclMemAlloc) MemAlloc;
  decltype(&::ncclMemFree) MemFree;
  decltype(&::ncclCommWindowRegister) CommWindowRegister;
  decltype(&::ncclCommWindowDeregister) CommWindowDeregister;
  decltype(&::ncclGroupStart) GroupStart;
  decltype(&::ncclGroupEnd) GroupEnd;
  decltype(&::ncclAllReduce) AllReduce;
  decltype(&::ncclAllGather) AllGather;
  decltype(&::ncclReduceScatter) ReduceScatter;
  decltype(&::ncclReduce) Reduce;
  decltype(&::ncclBroadcast) Broadcast;
  decltype(&::ncclSend) Send;
  decltype(&::ncclRecv) Recv;
};

// The first version with all functions and fields of ncclConfig_t that gaccd uses.
inline constexpr int kOldestNccl = NCCL_VERSION(2, 27, 0);

// Loads libnccl.so.2 once; never unloaded. kUnavailable: not found, a symbol is missing, or older
// than kOldestNccl (with both versions).
Result<const NcclApi*> LoadNccl();

// kUnavailable, with both versions, if the library of `api` is older than kOldestNccl.
[[nodiscard]] Status CheckNcclVersion(const NcclApi& api);

// OK for ncclSuccess and ncclInProgress. Otherwise kUnavailable: "`what`: remote process exited or
// there was a network error (last error of NCCL)". comm may be null.
[[nodiscard]] Status NcclStatus(const NcclApi& api, ncclComm_t comm, ncclResult_t result,
                                std::string_view what);

// NCCL calls that must not hang. Communicators are non-blocking, so most calls return at once and
// are polled; those that may still block run on another thread.

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
