#include "collectives/comm/nccl_calls.h"

#include <condition_variable>
#include <mutex>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/comm/pause.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

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
