// The communicator between processes: MPI between nodes, shared memory inside a node.
//
// Most code should use MakeMpi() of collectives/bootstrap/mpi_session.h.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>

#include "collectives/comm/communicator.h"

namespace gaccd {

struct MpiGroup {
  // The ranks of the new communicator. Only used during creation.
  MPI_Comm comm = MPI_COMM_NULL;
  // Equal on ranks that share memory, different otherwise. Tests fake nodes with it.
  int node_key = 0;
  std::string host;
  // The machine has more ranks than cores: waiting ranks yield their core at once.
  bool oversubscribed = false;
  // true: a rank that waits for other nodes or for a message sleeps between polls; false: it polls
  // continuously, which has lower latency but uses a core.
  bool sleeps = false;
  // Set when an operation failed: MPI_Finalize would then wait forever.
  std::shared_ptr<std::atomic<bool>> broken;
};

// Collective over group.comm. kConfig if the ranks have different options. If a rank does not
// arrive within options.bound, the process exits with code 69, as MPI set-up calls have no time
// limit.
Result<std::unique_ptr<Communicator>> MakeMpiComm(const MpiGroup& group,
                                                  const CommOptions& options);

}  // namespace gaccd
