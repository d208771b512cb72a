// Thin wrappers of MPI calls, used by everything that includes mpi.h.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// Ok, or kUnavailable with `what` and MPI's message. Requires communicators whose error handler
// returns codes.
[[nodiscard]] Status MpiStatus(int code, std::string_view what);

[[nodiscard]] MPI_Datatype MpiType(DType dtype);

// Collective: copies and parts of `comm`, with error codes returned. color < 0: MPI_COMM_NULL. The
// results are never freed: MPI_Comm_free is collective, and the other ranks may be gone.
Result<MPI_Comm> DuplicateComm(MPI_Comm comm);
Result<MPI_Comm> SplitComm(MPI_Comm comm, int color, int key);

// One segment of shared memory per rank of a communicator whose ranks share a node. Segments are
// aligned to 4096 bytes and not initialised; pages are allocated when touched. Never freed, as
// above.
class SharedWindow {
 public:
  // Collective over node_comm; the same `bytes` on every rank.
  static Result<SharedWindow> Allocate(MPI_Comm node_comm, std::size_t bytes);

  // Address of the segment of a rank of node_comm in this process.
  [[nodiscard]] std::byte* segment(int local_rank) const {
    return base_ + static_cast<std::size_t>(local_rank) * stride_;
  }
  // Bytes of one segment, rounded up to whole pages.
  [[nodiscard]] std::size_t bytes() const { return stride_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t stride_ = 0;
};

// MpiGroup: ranks and settings of an MPI communicator.
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
