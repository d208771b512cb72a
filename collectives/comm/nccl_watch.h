// NcclWatch: owns a NCCL communicator and sees to it that nobody waits for it forever.
//
// A thread of its own looks every few milliseconds at the collectives in flight, at NCCL's
// asynchronous error, at the processes of this node and at what their watches tell. It is a thread,
// and not a part of Poll(), because the rank may sit inside cudaStreamSynchronize() just then. At
// an error, at a deadline, or when a peer has died, it records the first error and starts the abort
// of the communicator, for which nobody waits: kernels that spin for other ranks end, and
// a caller that waits for the stream returns and finds the error. With NcclOptions::windows they
// may never leave: ask failure() also while waiting. The data of the collectives is then worthless.
//
// Enqueue() and Call() belong to one thread at a time; failure() to any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/nccl_board.h"
#include "collectives/comm/nccl_calls.h"
#include "collectives/comm/nccl_pending.h"

namespace gaccd {

struct NcclWatchOptions {
  const NcclApi* api = nullptr;
  ncclComm_t comm = nullptr;  // owned from here on
  int rank = 0;
  int device = 0;
  std::vector<std::string> hosts;  // by rank
  std::chrono::milliseconds bound{60'000};
  PeerProcesses peers;
  NcclBoard board;
};

class NcclWatch {
 public:
  static Result<std::unique_ptr<NcclWatch>> Start(NcclWatchOptions options);
  // End(), if it was not called.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // calls(comm) enqueues one collective or message on `stream`, in one or more calls, which become
  // one group.
  // The mutex is held for them: NCCL allows one thread at a time on a communicator, and the watch
  // may abort it. It is free while NCCL works on them.
  template <typename Calls>
  Status Enqueue(Operation operation, cudaStream_t stream, const Calls& calls) {
    std::unique_lock lock(mutex_);
    GACCD_RETURN_IF_ERROR(BeginLocked(operation, stream));
    ncclResult_t result = options_.api->GroupStart();
    if (result == ncclSuccess) {
      result = calls(options_.comm);
      const ncclResult_t ended = options_.api->GroupEnd();
      if (result == ncclSuccess || result == ncclInProgress) result = ended;
    }
    return EndLocked(result, stream, lock);
  }

  // call(comm), and waits until NCCL is done with it, for at most kNcclSetUpShare of the bound.
  template <typename Function>
  Status Call(std::string_view what, const Function& call) {
    std::unique_lock lock(mutex_);
    GACCD_RETURN_IF_ERROR(ReadyLocked());
    return FinishLocked(what, call(options_.comm), SetUpLimit(), lock);
  }

  // Waits until nothing is in flight any more, or the first error.
  Status WaitIdle();

  // The first error, for ever.
  [[nodiscard]] Status failure() const;
  // The same: the oldest collective that was in flight then, and who of this node was missing.
  [[nodiscard]] std::optional<CommFailure> lost() const;
  // Records an error, if it is the first, and starts the abort. Returns the first, at once.
  Status Fail(const Status& status);
  // Whether the abort of a failed communicator is over within `limit`: NCCL has let go of all
  // memory then. True also for one that has not failed.
  [[nodiscard]] bool AbortEndsWithin(std::chrono::nanoseconds limit) const;
  // Finalises and destroys the communicator, within the bound; aborts it if that fails. For the
  // abort of a failed one it waits a tenth of the bound.
  void End();

  [[nodiscard]] const PeerProcesses& peers() const { return options_.peers; }
  [[nodiscard]] std::chrono::nanoseconds SetUpLimit() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  explicit NcclWatch(NcclWatchOptions options);

  [[nodiscard]] Status ReadyLocked() const;
  Status BeginLocked(Operation operation, cudaStream_t stream);
  Status EndLocked(ncclResult_t result, cudaStream_t stream, Lock& lock);
  Status FinishLocked(std::string_view what, ncclResult_t result, std::chrono::nanoseconds limit,
                      Lock& lock);
  Status FailLocked(const Status& status);

  [[nodiscard]] std::chrono::nanoseconds EnqueueLimit() const;
  void Run();
  Status LookLocked();
  Status LookForLostPeers();
  [[nodiscard]] Status NotDone(Entry entry, Deadline::Clock::duration waited);
  Status AskNccl();
  // An asynchronous error of NCCL, with whom it lost. OK as long as nobody is known to have ended
  // and a dying process may still come to that.
  Status Broken(ncclResult_t error, std::string_view where);
  [[nodiscard]] std::vector<MissingRank> EndedPeers() const;
  // Those whose process has ended; if there are none, those that gave up. Empty: nobody.
  [[nodiscard]] std::string NameLostPeers() const;

  NcclWatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;  // for the thread: work, or the end
  std::condition_variable idle_;  // for WaitIdle()
  NcclPending pending_;
  Entry newest_;
  std::optional<Deadline::Clock::time_point> death_seen_;
  std::optional<Deadline::Clock::time_point> error_seen_;
  Status failure_;
  CommFailure lost_;
  NcclEnd end_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace gaccd
