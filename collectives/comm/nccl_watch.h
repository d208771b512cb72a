// NcclWatch: owns a NCCL communicator and ensures that no caller waits for it forever.
//
// A thread polls every few milliseconds: the collectives in flight, NCCL's asynchronous error, the
// processes of this node and their boards. It is a thread and not part of Poll(), because the rank
// may be blocked in cudaStreamSynchronize(). At an error, a deadline, or the death of a peer, it
// records the first error and starts the abort of the communicator without waiting for it: kernels
// that spin for other ranks end, and a caller that waits for the stream returns and finds the
// error. With NcclOptions::windows the kernels may never end: call failure() while waiting, too.
// The data of aborted collectives is invalid.
//
// Enqueue() and Call() are used by one thread at a time; failure() is thread-safe.
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
#include "collectives/comm/nccl_api.h"
#include "collectives/comm/nccl_board.h"
#include "collectives/comm/nccl_pending.h"

namespace gaccd {

struct NcclWatchOptions {
  const NcclApi* api = nullptr;
  ncclComm_t comm = nullptr;  // owned by the watch
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
  // Calls End() if it was not called.
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // Enqueues one collective or message on `stream`: calls(comm) makes one or more NCCL calls, which
  // become one group. The mutex is held during the calls, as NCCL allows one thread at a time on a
  // communicator and the watch may abort it. It is released while NCCL processes them, and while
  // CUDA records the events. The deadline begins when the work enqueued before on `begins` is done;
  // null: on `stream`.
  template <typename Calls>
  Status Enqueue(Operation operation, cudaStream_t stream, const Calls& calls,
                 cudaStream_t begins = nullptr) {
    std::unique_lock lock(mutex_);
    GACCD_RETURN_IF_ERROR(
        BeginLocked(operation, stream, begins != nullptr ? begins : stream, lock));
    ncclResult_t result = options_.api->GroupStart();
    if (result == ncclSuccess) {
      result = calls(options_.comm);
      const ncclResult_t ended = options_.api->GroupEnd();
      if (result == ncclSuccess || result == ncclInProgress) result = ended;
    }
    return EndLocked(result, stream, lock);
  }

  // Runs call(comm), and waits until NCCL has completed it, for at most kNcclSetUpShare of the
  // bound.
  template <typename Function>
  Status Call(std::string_view what, const Function& call) {
    std::unique_lock lock(mutex_);
    GACCD_RETURN_IF_ERROR(ReadyLocked());
    return FinishLocked(what, call(options_.comm), SetUpLimit(), lock);
  }

  // Waits until nothing is in flight, or for the first error.
  Status WaitIdle();

  // The first error; never changes afterwards.
  [[nodiscard]] Status failure() const;
  // The oldest collective in flight at the failure, and the ranks of this node that were missing.
  [[nodiscard]] std::optional<CommFailure> lost() const;
  // Records an error if it is the first, and starts the abort. Returns the first error, without
  // waiting.
  Status Fail(const Status& status);
  // Whether the abort of a failed communicator ends within `limit`; NCCL has then released all
  // memory. True if there was no failure.
  [[nodiscard]] bool AbortEndsWithin(std::chrono::nanoseconds limit) const;
  // Finalises and destroys the communicator, within the bound; aborts it if that fails. Waits at
  // most a tenth of the bound for the abort of a failed communicator.
  void End();

  [[nodiscard]] const PeerProcesses& peers() const { return options_.peers; }
  [[nodiscard]] std::chrono::nanoseconds SetUpLimit() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  explicit NcclWatch(NcclWatchOptions options);

  [[nodiscard]] Status ReadyLocked() const;
  Status BeginLocked(Operation operation, cudaStream_t stream, cudaStream_t begins, Lock& lock);
  Status RecordUnlocked(cudaEvent_t event, cudaStream_t stream, Lock& lock);
  Status EndLocked(ncclResult_t result, cudaStream_t stream, Lock& lock);
  Status FinishLocked(std::string_view what, ncclResult_t result, std::chrono::nanoseconds limit,
                      Lock& lock);
  Status FailLocked(const Status& status);

  [[nodiscard]] std::chrono::nanoseconds EnqueueLimit() const;
  void Run();
  Status PollLocked();
  Status FindLostPeers();
  [[nodiscard]] Status NotDone(Entry entry, Deadline::Clock::duration waited);
  Status PollNccl();
  // An asynchronous error of NCCL, with the lost peers. OK while no peer is known to have ended and
  // a dying process may still be detected.
  Status Broken(ncclResult_t error, std::string_view where);
  [[nodiscard]] std::vector<MissingRank> EndedPeers() const;
  // The peers whose process has ended; if there are none, those that gave up; empty: none.
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
