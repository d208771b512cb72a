// The communicator between processes: MPI across nodes, shared memory inside a node.
//
// Most code wants MakeMpi() of collectives/bootstrap/mpi_session.h, which calls this one.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>

#include "collectives/comm/communicator.h"

namespace gaccd {

struct MpiGroup {
  // Its ranks become the communicator's. Only used while it is made.
  MPI_Comm comm = MPI_COMM_NULL;
  // Equal on ranks that share memory, different on others. Tests fake nodes with it.
  int node_key = 0;
  std::string host;
  // The machine runs more ranks than it has cores: waiting ranks give their core away at once.
  bool oversubscribed = false;
  // A rank that waits for other nodes, or for a message, sleeps between two looks; else it polls
  // for as long as it waits, which ends sooner and takes a core.
  bool sleeps = false;
  // Set when an operation failed: MPI_Finalize would then wait for ranks that never come.
  std::shared_ptr<std::atomic<bool>> broken;
};

// Collective over group.comm. kConfig when the ranks have different options. If a rank does not
// come within options.bound the process ends with exit code 69: MPI has no set-up call with a time
// limit.
Result<std::unique_ptr<Communicator>> MakeMpiComm(const MpiGroup& group,
                                                  const CommOptions& options);

}  // namespace gaccd
