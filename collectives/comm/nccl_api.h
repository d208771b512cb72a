// The NCCL functions used by gaccd, as a table: the library is loaded on demand, so that the binary
// starts without it, and tests can replace it. Sums are plain: ncclAvg and ncclRedOpCreatePreMulSum
// are omitted on purpose, as summed values already have their weights.
#pragma once

#include <nccl.h>

#include <string_view>

#include "collectives/base/result.h"

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

}  // namespace gaccd
