// MpiGroup: ranks and settings of an MPI communicator.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <string>

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

}  // namespace gaccd
