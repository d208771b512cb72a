// NcclPending: device collectives that are enqueued and not known to be done.
//
//   start event | the collective | end event      all on the stream of the caller, except the start
//                                                 of a receive (Communicator::SetReader())
//
// Before its start event a collective only waits for earlier computation, for any time; between
// start and end it waits for other ranks, with a deadline. Not thread-safe; the current device of
// every calling thread must be the communicator's.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <optional>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/comm/communicator.h"
#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

class NcclPending {
 public:
  using Clock = Deadline::Clock;

  explicit NcclPending(std::chrono::milliseconds bound) : bound_(bound) {}

  // Call before and after enqueueing one collective; the caller records start() and end(). A
  // Begin() without End() is dropped by the next Begin().
  Status Begin(Entry entry);
  void End();
  // Of the collective that has begun, until End().
  [[nodiscard]] cudaEvent_t start() const { return open_->start.get(); }
  [[nodiscard]] cudaEvent_t end() const { return open_->end.get(); }

  // Queries the events of all pending operations and removes those that are done. kUnavailable if
  // CUDA has failed.
  Status PollHealth();

  [[nodiscard]] bool empty() const { return pending_.empty(); }
  // REQUIRES: !empty(). The oldest operation, and the time it was enqueued.
  [[nodiscard]] Entry oldest() const { return pending_.front().entry; }
  [[nodiscard]] Clock::time_point enqueued() const { return pending_.front().enqueued; }

  struct Late {
    Entry entry;
    Clock::duration waited;
  };
  // A collective whose deadline has passed, if any.
  [[nodiscard]] std::optional<Late> FindLate();

 private:
  struct PendingOp {
    Entry entry;
    CudaEvent start;
    CudaEvent end;
    Clock::time_point enqueued;
    std::optional<Deadline> deadline;  // set once the start event has completed
  };

  Status PollHealth(PendingOp* op, bool* done);
  Result<CudaEvent> AcquireEvent();

  std::chrono::milliseconds bound_;
  std::optional<PendingOp> open_;
  std::deque<PendingOp> pending_;
  std::vector<CudaEvent> events_;  // for reuse
};

}  // namespace gaccd
