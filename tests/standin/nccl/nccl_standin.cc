// The entry points.
#include "tests/standin/nccl/nccl_standin.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "collectives/base/strings.h"
#include "tests/standin/nccl/nccl_world.h"
#include "tests/standin/standin.h"

namespace gaccd {
namespace {

using standin::EnterNccl;
using standin::GetComm;
using standin::Library;
using standin::Move;
using standin::NcclCall;
using standin::NcclFatal;
using Lock = std::lock_guard<std::mutex>;

// The group that this thread has open.
struct OpenGroup {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  standin::Launch launch;
};
thread_local OpenGroup open_group;

std::string Text(const ncclUniqueId& id) { return {id.internal, sizeof(id.internal)}; }

bool IsGood(const ncclConfig_t* config) {
  return config != nullptr && config->size == sizeof(ncclConfig_t) && config->blocking == 0 &&
         config->commName != nullptr && config->maxCTAs > 0;
}

ncclResult_t GetVersion(int* version) {
  const Lock lock(Library().mutex);
  if (const auto wanted = EnterNccl("ncclGetVersion", -1)) return *wanted;
  *version = Library().knobs.version;
  return ncclSuccess;
}

ncclResult_t GetUniqueId(ncclUniqueId* id) {
  const Lock lock(Library().mutex);
  if (const auto wanted = EnterNccl("ncclGetUniqueId", -1)) return *wanted;
  std::memset(id->internal, 0, sizeof(id->internal));
  const std::string text = StrCat("stand-in ", Library().ids.size());
  std::memcpy(id->internal, text.data(), text.size());
  Library().ids.insert(Text(*id));
  return ncclSuccess;
}

// REQUIRES the lock.
ncclResult_t Join(ncclComm_t* comm, int ranks, const std::string& ids, int rank,
                  const ncclConfig_t* config) {
  *comm = nullptr;
  if (!IsGood(config) || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  auto& group = Library().groups[ids];
  if (group == nullptr) {
    group = std::make_shared<standin::Group>();
    group->size = ranks;
    group->members.resize(static_cast<std::size_t>(ranks));
  }
  ncclComm_t& place = group->members[static_cast<std::size_t>(rank)];
  if (group->size != ranks || place != nullptr) return ncclInvalidUsage;
  place = standin::AddComm();
  place->group = group;
  place->rank = rank;
  place->ready_at = std::chrono::steady_clock::now() + Library().knobs.start;
  ++group->joined;
  *comm = place;
  return ncclInProgress;
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                ncclConfig_t* config) {
  const Lock lock(Library().mutex);
  if (const auto wanted = EnterNccl("ncclCommInitRankConfig", rank)) return *wanted;
  if (!Library().ids.contains(Text(id))) return ncclInvalidArgument;
  return Join(comm, ranks, Text(id), rank, config);
}

ncclResult_t CommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                  ncclUniqueId* ids, ncclConfig_t* config) {
  const Lock lock(Library().mutex);
  if (const auto wanted = EnterNccl("ncclCommInitRankScalable", rank)) return *wanted;
  std::string all;
  for (int i = 0; i < id_count; ++i) {
    if (!Library().ids.contains(Text(ids[i]))) return ncclInvalidArgument;
    all += Text(ids[i]);
  }
  return Join(comm, ranks, all, rank, config);
}

ncclResult_t CommFinalize(ncclComm_t handle) {
  const Lock lock(Library().mutex);
  ncclComm& comm = GetComm(handle, "ncclCommFinalize");
  if (const auto wanted = EnterNccl("ncclCommFinalize", comm.rank)) return *wanted;
  standin::RequireIdle(comm, "ncclCommFinalize");
  if (!comm.windows.empty()) NcclFatal("ncclCommFinalize with open windows");
  comm.finalized = true;
  return ncclInProgress;
}

// Lets go of the lock: the memory is free only when the GPU does not use it any more.
void Remove(ncclComm& comm, std::unique_lock<std::mutex>& lock) {
  if (comm.group != nullptr) comm.group->members[static_cast<std::size_t>(comm.rank)] = nullptr;
  void* const channels = comm.channels;
  Library().comms.erase(&comm);
  lock.unlock();
  if (channels != nullptr) (void)cudaFree(channels);
}

ncclResult_t CommDestroy(ncclComm_t handle) {
  std::unique_lock lock(Library().mutex);
  ncclComm& comm = GetComm(handle, "ncclCommDestroy");
  if (const auto wanted = EnterNccl("ncclCommDestroy", comm.rank)) return *wanted;
  if (!comm.finalized || comm.finished < comm.launched) {
    NcclFatal("ncclCommDestroy of a communicator that is not finalized");
  }
  Remove(comm, lock);
  return ncclSuccess;
}

// The work of this rank leaves its stream, done or not; that of the others stays.
ncclResult_t CommAbort(ncclComm_t handle) {
  std::unique_lock lock(Library().mutex);
  ncclComm& comm = GetComm(handle, "ncclCommAbort");
  (void)EnterNccl("ncclCommAbort", comm.rank);
  const std::shared_ptr<ncclComm> alive = Library().comms.at(handle);
  comm.aborted = true;
  Library().changed.notify_all();
  Library().changed.wait(lock, [&] { return comm.symmetric == 0; });
  for (ncclWindow_t window : comm.windows) delete window;
  comm.windows.clear();
  Library().changed.notify_all();
  Remove(comm, lock);
  return ncclSuccess;
}

ncclResult_t CommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const Lock lock(Library().mutex);
  ncclComm& comm = GetComm(handle, "ncclCommGetAsyncError");
  if (const auto wanted = EnterNccl("ncclCommGetAsyncError", comm.rank)) return *wanted;
  *error = standin::Progress(comm);
  return ncclSuccess;
}

const char* GetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* GetLastError(ncclComm_t) { return ""; }

ncclResult_t MemAlloc(void** data, std::size_t bytes) {
  {
    const Lock lock(Library().mutex);
    if (const auto wanted = EnterNccl("ncclMemAlloc", -1)) return *wanted;
  }
  // Whole pages, as the real one gives whole granules: windows need the alignment.
  std::size_t given = (bytes + 4095) / 4096 * 4096;
  const Lock lock(Library().mutex);
  if (Library().knobs.unaligned_alloc-- > 0) given += 256;  // memory ends at the end of a page
  const cudaError_t error = cudaMalloc(data, given);
  if (error != cudaSuccess) return ncclUnhandledCudaError;
  std::memset(*data, 0xa5, bytes);  // real memory is not zeroed either
  Library().memory.insert(*data);
  return ncclSuccess;
}

ncclResult_t MemFree(void* data) {
  {
    const Lock lock(Library().mutex);
    if (const auto wanted = EnterNccl("ncclMemFree", -1)) return *wanted;
    if (Library().memory.erase(data) == 0) NcclFatal("ncclMemFree of memory that is not NCCL's");
    for (const auto& [handle, comm] : Library().comms) {
      for (ncclWindow_t window : comm->windows) {
        if (window->data != data) continue;
        NcclFatal(comm->symmetric > 0 ? "ncclMemFree under a kernel that still runs"
                                      : "ncclMemFree under an open window");
      }
    }
  }
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t CommWindowRegister(ncclComm_t handle, void* data, std::size_t bytes,
                                ncclWindow_t* window, int flags) {
  const Lock lock(Library().mutex);
  ncclComm& comm = GetComm(handle, "ncclCommWindowRegister");
  *window = nullptr;
  if (const auto wanted = EnterNccl("ncclCommWindowRegister", comm.rank)) return *wanted;
  standin::RequireIdle(comm, "ncclCommWindowRegister");
  if (reinterpret_cast<std::uintptr_t>(data) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return ncclInvalidArgument;
  }
  if (Library().knobs.windows && Library().knobs.no_window_rank != comm.rank) {
    *window = new ncclWindow_vidmem{data, bytes, (flags & NCCL_WIN_COLL_SYMMETRIC) != 0};
    comm.windows.insert(*window);
  }
  standin::JoinHostMeeting(comm);
  return ncclInProgress;
}

ncclResult_t CommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
  const Lock lock(Library().mutex);
  ncclComm& comm = GetComm(handle, "ncclCommWindowDeregister");
  if (const auto wanted = EnterNccl("ncclCommWindowDeregister", comm.rank)) return *wanted;
  standin::RequireIdle(comm, "ncclCommWindowDeregister");
  if (comm.windows.erase(window) == 0) NcclFatal("a window that is not open is deregistered");
  delete window;
  return ncclSuccess;
}

ncclResult_t GroupStart() {
  const Lock lock(Library().mutex);
  if (const auto wanted = EnterNccl("ncclGroupStart", -1)) return *wanted;
  ++open_group.depth;
  return ncclSuccess;
}

ncclResult_t GroupEnd() {
  const Lock lock(Library().mutex);
  if (open_group.depth == 0) NcclFatal("ncclGroupEnd without ncclGroupStart");
  if (--open_group.depth > 0) return ncclSuccess;
  OpenGroup group = std::exchange(open_group, {});
  if (const auto wanted = EnterNccl("ncclGroupEnd", -1)) return *wanted;
  if (group.comm == nullptr) return ncclSuccess;
  ncclComm& comm = GetComm(group.comm, "ncclGroupEnd");
  comm.pending = std::move(group.launch);
  comm.stream = group.stream;
  comm.questions = Library().knobs.questions;
  return ncclInProgress;
}

ncclResult_t Add(const char* function, const NcclCall& call, ncclComm_t handle,
                 cudaStream_t stream) {
  const Lock lock(Library().mutex);
  ncclComm& comm = GetComm(handle, function);
  if (const auto wanted = EnterNccl(function, comm.rank)) return *wanted;
  standin::RequireIdle(comm, function);
  if (open_group.depth == 0) NcclFatal(StrCat(function, " outside of a group"));
  if (open_group.comm != nullptr && (open_group.comm != handle || open_group.stream != stream)) {
    NcclFatal(StrCat(function, ": one group for two communicators or streams"));
  }
  if (!open_group.launch.empty() && open_group.launch.front().is_message() != call.is_message()) {
    NcclFatal(StrCat(function, ": one group of collectives and messages"));
  }
  if (call.root < 0 || call.root >= comm.group->size) return ncclInvalidArgument;
  open_group.comm = handle;
  open_group.stream = stream;
  open_group.launch.push_back(call);
  return ncclSuccess;
}

ncclResult_t AllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;  // ncclAvg is never right here
  return Add("ncclAllReduce", {Move::kAllReduce, in, out, count, type, 0}, comm, stream);
}

ncclResult_t AllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                       ncclComm_t comm, cudaStream_t stream) {
  return Add("ncclAllGather", {Move::kAllGather, in, out, count, type, 0}, comm, stream);
}

ncclResult_t ReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;
  return Add("ncclReduceScatter", {Move::kReduceScatter, in, out, count, type, 0}, comm, stream);
}

ncclResult_t Reduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;
  return Add("ncclReduce", {Move::kReduce, in, out, count, type, root}, comm, stream);
}

ncclResult_t Broadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return Add("ncclBroadcast", {Move::kBroadcast, in, out, count, type, root}, comm, stream);
}

ncclResult_t Send(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return Add("ncclSend", {Move::kSend, in, nullptr, count, type, peer}, comm, stream);
}

ncclResult_t Recv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  return Add("ncclRecv", {Move::kReceive, nullptr, out, count, type, peer}, comm, stream);
}

}  // namespace

const NcclApi* StandInNccl() {
  static const NcclApi api = {
      GetVersion,
      GetUniqueId,
      CommInitRankConfig,
      CommInitRankScalable,
      CommFinalize,
      CommDestroy,
      CommAbort,
      CommGetAsyncError,
      GetErrorString,
      GetLastError,
      MemAlloc,
      MemFree,
      CommWindowRegister,
      CommWindowDeregister,
      GroupStart,
      GroupEnd,
      AllReduce,
      AllGather,
      ReduceScatter,
      Reduce,
      Broadcast,
      Send,
      Recv,
  };
  return &api;
}

}  // namespace gaccd
