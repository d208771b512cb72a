#include "collectives/comm/nccl_api.h"

#include <condition_variable>
#include <mutex>

#include "collectives/base/shared_library.h"
#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/comm/wait.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

namespace {

constexpr const char* kLibrary = "libnccl.so.2";

std::string VersionText(int code) {
  return StrCat(code / 10'000, ".", code / 100 % 100, ".", code % 100);
}

Result<NcclApi> FindFunctions(const SharedLibrary& library) {
  NcclApi api{};
  GACCD_RETURN_IF_ERROR(library.Find("ncclGetVersion", &api.GetVersion));
  // an old library lacks functions: report that first
  GACCD_RETURN_IF_ERROR(CheckNcclVersion(api));
  GACCD_RETURN_IF_ERROR(library.Find("ncclGetUniqueId", &api.GetUniqueId));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommInitRankConfig", &api.CommInitRankConfig));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommInitRankScalable", &api.CommInitRankScalable));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommFinalize", &api.CommFinalize));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommDestroy", &api.CommDestroy));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommAbort", &api.CommAbort));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommGetAsyncError", &api.CommGetAsyncError));
  GACCD_RETURN_IF_ERROR(library.Find("ncclGetErrorString", &api.GetErrorString));
  GACCD_RETURN_IF_ERROR(library.Find("ncclGetLastError", &api.GetLastError));
  GACCD_RETURN_IF_ERROR(library.Find("ncclMemAlloc", &api.MemAlloc));
  GACCD_RETURN_IF_ERROR(library.Find("ncclMemFree", &api.MemFree));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommWindowRegister", &api.CommWindowRegister));
  GACCD_RETURN_IF_ERROR(library.Find("ncclCommWindowDeregister", &api.CommWindowDeregister));
  GACCD_RETURN_IF_ERROR(library.Find("ncclGroupStart", &api.GroupStart));
  GACCD_RETURN_IF_ERROR(library.Find("ncclGroupEnd", &api.GroupEnd));
  GACCD_RETURN_IF_ERROR(library.Find("ncclAllReduce", &api.AllReduce));
  GACCD_RETURN_IF_ERROR(library.Find("ncclAllGather", &api.AllGather));
  GACCD_RETURN_IF_ERROR(library.Find("ncclReduceScatter", &api.ReduceScatter));
  GACCD_RETURN_IF_ERROR(library.Find("ncclReduce", &api.Reduce));
  GACCD_RETURN_IF_ERROR(library.Find("ncclBroadcast", &api.Broadcast));
  GACCD_RETURN_IF_ERROR(library.Find("ncclSend", &api.Send));
  GACCD_RETURN_IF_ERROR(library.Find("ncclRecv", &api.Recv));
  return api;
}

Result<NcclApi> Load() {
  GACCD_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Open(kLibrary));
  return FindFunctions(library);
}

}  // namespace

Status CheckNcclVersion(const NcclApi& api) {
  int loaded = 0;
  GACCD_RETURN_IF_ERROR(NcclStatus(api, nullptr, api.GetVersion(&loaded), "ncclGetVersion"));
  if (loaded >= kOldestNccl) return Status::Ok();
  return {ErrorKind::kUnavailable,
          StrCat("NCCL is too old: gaccd needs ", VersionText(kOldestNccl),
                 " or newer, the loaded ", kLibrary, " is ", VersionText(loaded))};
}

Result<const NcclApi*> LoadNccl() {
  static const Result<NcclApi> loaded = Load();
  if (!loaded.ok()) return loaded.status();
  return &loaded.value();
}

Status NcclStatus(const NcclApi& api, ncclComm_t comm, ncclResult_t result, std::string_view what) {
  if (result == ncclSuccess || result == ncclInProgress) return Status::Ok();
  std::string text = StrCat(what, ": ");
  text += api.GetErrorString == nullptr ? StrCat("NCCL error ", static_cast<int>(result))
                                        : std::string(api.GetErrorString(result));
  // Kept per thread by NCCL; empty if this thread did not see the error.
  const char* last = api.GetLastError == nullptr ? nullptr : api.GetLastError(comm);
  if (last != nullptr && *last != '\0') text += StrCat(" (", last, ")");
  return {ErrorKind::kUnavailable, std::move(text)};
}

struct NcclEnd::Over {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
};

Status WaitForNccl(const NcclApi& api, ncclComm_t comm, std::chrono::nanoseconds limit,
                   const PeerProcesses& peers, std::string_view what) {
  Deadline clock(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
  Pause pause;
  for (;;) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = api.CommGetAsyncError(comm, &state);
    GACCD_RETURN_IF_ERROR(NcclStatus(api, comm, asked, what));
    GACCD_RETURN_IF_ERROR(NcclStatus(api, comm, state, what));
    if (state != ncclInProgress) return Status::Ok();
    if (const std::vector<int> ended = peers.Ended(); !ended.empty()) {
      return {ErrorKind::kUnavailable, StrCat(what, ": rank ", ended.front(), kHasEnded)};
    }
    if (clock.Elapsed() >= limit) {
      return {
          ErrorKind::kUnavailable,
          StrCat(what, ": NCCL was not done within ", std::chrono::duration<double>(limit).count(),
                 " s; at least one rank did not arrive, or the network between them does not "
                 "work")};
    }
    pause.Wait();
  }
}

NcclEnd NcclEnd::Start(ncclResult_t (*call)(ncclComm_t), ncclComm_t comm) {
  NcclEnd end;
  if (comm == nullptr) return end;
  const auto over = std::make_shared<Over>();
  auto thread = StartThread("a call of NCCL", [over, call, comm] {
    (void)call(comm);
    const std::lock_guard lock(over->mutex);
    over->over = true;
    over->changed.notify_all();
  });
  if (!thread.ok()) return end;  // the process is about to end, which frees the GPU
  thread->detach();
  end.over_ = over;
  return end;
}

NcclEnd NcclEnd::Abort(const NcclApi& api, ncclComm_t comm) { return Start(api.CommAbort, comm); }

NcclEnd NcclEnd::Destroy(const NcclApi& api, ncclComm_t comm) {
  return Start(api.CommDestroy, comm);
}

bool NcclEnd::Wait(std::chrono::nanoseconds limit) const {
  if (over_ == nullptr) return true;
  std::unique_lock lock(over_->mutex);
  return over_->changed.wait_for(lock, limit, [&] { return over_->over; });
}

}  // namespace gaccd
