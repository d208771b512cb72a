// Waiting in the MPI communicator: for the other ranks of the node (a barrier in shared memory) and
// for MPI requests, always with a deadline, and naming the missing ranks when it passes or when one
// of them dies.
//
// One operation: Enter(), then any number of waits, then Leave(). The first wait that fails makes
// every later one fail with the same error. Not thread-safe.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/comm/communicator.h"
#include "collectives/comm/mpi_comm.h"
#include "collectives/comm/mpi_reports.h"
#include "collectives/comm/node_group.h"
#include "collectives/comm/pause.h"
#include "collectives/liveness/deadline/deadline.h"

namespace gaccd {

class MpiWatch {
 public:
  // reports: null when there is one node. Of group: oversubscribed, sleeps.
  MpiWatch(const Topology* topology, int rank, std::shared_ptr<NodeGroup> node,
           std::unique_ptr<MpiReports> reports, const CommOptions& options, const MpiGroup& group);

  // Starts an operation: publishes it. shape: equal on all ranks of a
  // correct program. place: see NodeGroup::PlaceOf.
  Status Enter(Operation operation, std::uint64_t shape, std::int64_t place = kPrivate);
  void Leave();

  // Waits until every rank of the node has arrived here.
  Status NodeBarrier();
  // A NodeBarrier(), then checks that all ranks of the node are in the same operation with the same
  // shape. REQUIRES: the first wait of an operation.
  Status BarrierAndCheck();
  // After BarrierAndCheck(): true if the data of every rank of the node is in shared memory at one
  // place.
  [[nodiscard]] bool SamePlace() const;

  // Waits until arrived() is true: for a message of `from`, or, where that is this rank itself, for
  // its own to leave. Outside of operations.
  Status WaitForMessage(int from, const std::function<Result<bool>()>& arrived);

  // Waits for a request; it is MPI_REQUEST_NULL afterwards.
  Status Finish(MPI_Request* request);
  // Calls work(i) for every i < chunks on some rank of the node, whichever is free, and waits until
  // all of it is done. The same chunks on every rank. REQUIRES: a barrier before, in this
  // operation.
  template <typename Work>
  Status ShareWork(std::uint64_t chunks, Work work);
  // A request that is kept moving during other waits. null: none.
  void SetProgressRequest(MPI_Request* request) { progress_request_ = request; }

  // Records an error of an operation, so that the other ranks stop waiting for this one.
  Status Fail(Status error);
  [[nodiscard]] const Status& failure() const { return failure_; }
  // The same, with whom the operation waited for and who of this node has ended.
  [[nodiscard]] std::optional<CommFailure> lost() const;

 private:
  Status WaitFor(NodeGate& gate, std::uint64_t target);
  void StartLongWait();
  Status Wait(NodeGate& gate, std::uint64_t target);
  void PausePolling();
  Status PollHealth();
  Status PollForMessage(int from);
  [[nodiscard]] Status Interrupted() const;
  [[nodiscard]] Status WaitForInterrupt() const;
  Status GiveUp(bool late);
  Status FindMismatch() const;
  std::vector<MissingRank> ReadNode(bool late) const;
  std::vector<MissingRank> AskOtherNodes(std::vector<MissingRank> missing, bool late);
  [[nodiscard]] bool SpeaksForNode(bool second_call) const;
  [[nodiscard]] const CallNotice& notice(int line) const;
  [[nodiscard]] bool PeerGaveUp(GivenUp reason) const;

  const Topology* topology_;
  const int rank_;
  const std::shared_ptr<NodeGroup> node_;
  const std::unique_ptr<MpiReports> reports_;
  const CommOptions options_;
  const int spins_;
  const bool sleeps_;

  Entry mine_;
  Pause pause_;  // of this wait
  Deadline deadline_;
  Deadline::Clock::time_point last_look_;
  // Targets of the node's counters, which only grow.
  std::uint64_t arrivals_ = 0;
  std::uint64_t claims_ = 0;
  std::uint64_t done_ = 0;
  MPI_Request* progress_request_ = nullptr;
  Status failure_;
  std::vector<MissingRank> missing_;
};

template <typename Work>
Status MpiWatch::ShareWork(std::uint64_t chunks, Work work) {
  GACCD_RETURN_IF_ERROR(failure_);
  NodeCounters& counters = node_->counters();
  const std::uint64_t first = claims_;
  const std::uint64_t target = done_ + chunks;
  std::uint64_t mine = 0;
  for (;;) {
    const std::uint64_t i = counters.claimed.fetch_add(1, std::memory_order_relaxed) - first;
    if (i >= chunks) break;
    work(i);
    ++mine;
  }
  // Every rank is refused exactly once, and that before the next barrier.
  claims_ += chunks + static_cast<std::uint64_t>(node_->size());
  done_ = target;
  if (mine > 0) counters.done.Add(mine, target);
  return WaitFor(counters.done, target);
}

}  // namespace gaccd
