// The functions of NCCL that gaccd calls, as a table: the library is loaded when ranks on GPUs find
// each other, so that the binary starts where there is none, and tests put a stand-in there.
// Sums are plain: ncclAvg and ncclRedOpCreatePreMulSum are left out on purpose, as
// what is summed carries its weight already.
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

// The first with all the functions and fields of ncclConfig_t that gaccd uses.
inline constexpr int kOldestNccl = NCCL_VERSION(2, 27, 0);

// Loads libnccl.so.2 once; lives to the end of the process. kUnavailable: not found, a symbol is
// missing, or older than kOldestNccl, both versions named.
Result<const NcclApi*> LoadNccl();

// kUnavailable, naming both versions, when the library of `api` is older than kOldestNccl.
[[nodiscard]] Status CheckNcclVersion(const NcclApi& api);

// OK for ncclSuccess and ncclInProgress. Else kUnavailable: "`what`: remote process exited or there
// was a network error (last words of NCCL)". comm may be null.
[[nodiscard]] Status NcclStatus(const NcclApi& api, ncclComm_t comm, ncclResult_t result,
                                std::string_view what);

}  // namespace gaccd
