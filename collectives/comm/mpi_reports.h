// Reports between nodes when an operation does not complete: one rank of each node reports to
// all other nodes which of its ranks are missing. A node without a report is missing as a whole.
// Not thread-safe; works without any collective call, since not everybody may come.
#pragma once

#include <memory>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/mpi_handles.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

struct NodeReport {
  int node = 0;
  bool late = false;  // the sender's deadline has passed; false: it saw a rank end
  std::vector<MissingRank> missing;
};

class MpiReports {
 public:
  // side: a communicator that is used for nothing else.
  MpiReports(MPI_Comm side, const Topology* topology, int rank);
  ~MpiReports();
  MpiReports(const MpiReports&) = delete;
  MpiReports& operator=(const MpiReports&) = delete;

  // Receives what has come. True if any report has been received so far.
  bool Receive();
  [[nodiscard]] const std::vector<NodeReport>& received() const { return received_; }
  // Every other node has reported.
  [[nodiscard]] bool Complete() const;
  // Starts sending to every rank of every other node.
  void Send(const NodeReport& report);
  // True once all that was sent is under way.
  bool Sent();

 private:
  using Words = std::vector<std::int64_t>;
  [[nodiscard]] int NodeOf(int rank) const;
  void Merge(const Words& words);

  MPI_Comm side_ = MPI_COMM_NULL;
  const Topology* topology_;
  int rank_;
  std::vector<NodeReport> received_;
  std::unique_ptr<Words> message_;
  std::vector<MPI_Request> sends_;
};

}  // namespace gaccd
