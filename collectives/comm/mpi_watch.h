// MpiWatch: waits of the MPI communicator, for the other ranks of the node (a barrier in shared
// memory) and for MPI requests. Every wait has a deadline; when it passes or a rank dies, the error
// names the missing ranks.
//
// One operation: Enter(), any number of waits, Exit(). After the first failed wait, later ones
// return the same error. Not thread-safe.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/mpi_handles.h"
#include "collectives/comm/node_group.h"
#include "collectives/comm/wait.h"
#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

// Reports between nodes when an operation does not complete: one rank of each node reports its
// missing ranks to all other nodes. A node without a report is considered missing. Not thread-safe;
// uses no collective call, since not all ranks may participate.
struct NodeReport {
  int node = 0;
  bool late = false;  // the sender's deadline has passed; false: a rank of its node has ended
  std::vector<MissingRank> missing;
};

class MpiReports {
 public:
  // side: a communicator for these reports only.
  MpiReports(MPI_Comm side, const Topology* topology, int rank);
  ~MpiReports();
  MpiReports(const MpiReports&) = delete;
  MpiReports& operator=(const MpiReports&) = delete;

  // Receives pending reports. Returns whether any report has been received so far.
  bool Receive();
  [[nodiscard]] const std::vector<NodeReport>& received() const { return received_; }
  // Whether every other node has reported.
  [[nodiscard]] bool Complete() const;
  // Starts sending to every rank of all other nodes.
  void Send(const NodeReport& report);
  // Whether all sends have completed.
  bool Sent();

 private:
  using Words = std::vector<std::int64_t>;
  [[nodiscard]] int NodeIndex(int rank) const;
  void Merge(const Words& words);

  MPI_Comm side_ = MPI_COMM_NULL;
  const Topology* topology_;
  int rank_;
  std::vector<NodeReport> received_;
  std::unique_ptr<Words> message_;
  std::vector<MPI_Request> sends_;
};

class MpiWatch {
 public:
  // reports: null on a single node. Uses group.oversubscribed and group.sleeps.
  MpiWatch(const Topology* topology, int rank, std::shared_ptr<NodeGroup> node,
           std::unique_ptr<MpiReports> reports, const CommOptions& options, const MpiGroup& group);

  // Starts an operation and publishes it. shape: a hash that is equal on all ranks of a correct
  // program. place: see NodeGroup::FindPlace.
  Status Enter(Operation operation, std::uint64_t shape, std::int64_t place = kPrivate);
  void Exit();

  // Waits until every rank of the node has arrived.
  Status NodeBarrier();
  // NodeBarrier(), then checks that all ranks of the node are in the same operation with the same
  // shape. REQUIRES: the first wait of an operation.
  Status BarrierAndCheck();
  // After BarrierAndCheck(): whether the data of every rank of the node is at the same place in
  // shared memory.
  [[nodiscard]] bool SamePlace() const;

  // Waits until arrived() is true: for a message from `from`, or if `from` is this rank, until its
  // own messages are sent. Only between operations.
  Status WaitForMessage(int from, const std::function<Result<bool>()>& arrived);

  // Waits for a request, which becomes MPI_REQUEST_NULL.
  Status Finish(MPI_Request* request);
  // Distributes work(i), i < chunks, over the ranks of the node, dynamically, and waits until all
  // of it is done. `chunks` must be equal on all ranks. REQUIRES: an earlier barrier in this
  // operation.
  template <typename Work>
  Status ShareWork(std::uint64_t chunks, Work work);
  // A request to progress during other waits; null: none.
  void SetProgressRequest(MPI_Request* request) { progress_request_ = request; }

  // Records an error of an operation, so that the other ranks stop waiting for this one.
  Status Fail(Status error);
  [[nodiscard]] const Status& failure() const { return failure_; }
  // The operation that failed, and the ranks of this node that have ended.
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
  std::vector<MissingRank> QueryOtherNodes(std::vector<MissingRank> missing, bool late);
  [[nodiscard]] bool ReportsForNode(bool second_call) const;
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
  Deadline::Clock::time_point last_poll_;
  // Expected values of the node's counters, which only increase.
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
  // Each rank gets one index beyond the last chunk, before the next barrier.
  claims_ += chunks + static_cast<std::uint64_t>(node_->size());
  done_ = target;
  if (mine > 0) counters.done.Add(mine, target);
  return WaitFor(counters.done, target);
}

}  // namespace gaccd
