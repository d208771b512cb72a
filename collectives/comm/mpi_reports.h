// Reports between nodes when an operation does not complete: one rank of each node reports its
// missing ranks to all other nodes. A node without a report is considered missing. Not thread-safe;
// uses no collective call, since not all ranks may participate.
#pragma once

#include <memory>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/mpi_handles.h"
#include "collectives/liveness/deadline/missing.h"

namespace gaccd {

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

}  // namespace gaccd
