// NodeGroup: the ranks of one node: shared memory, notice board, and detection of ended processes.
//
// The shared memory consists of a permanent window (board and two staging halves per rank) and one
// window per Allocate(). Not thread-safe. Collective functions are marked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/comm/mpi_handles.h"
#include "collectives/comm/wait.h"
#include "collectives/liveness/deadline/missing.h"
#include "collectives/liveness/deadline/peer_processes.h"

namespace gaccd {

// Counters shared by the ranks of a node.
struct NodeCounters {
  NodeGate arrived;  // number of ranks at barriers
  NodeGate done;     // finished chunks of work
  // claimed chunks of work, plus one failed claim per rank
  alignas(128) std::atomic<std::uint64_t> claimed;
};

class NodeGroup {
 public:
  // Collective over `comm`, whose ranks share a node. ranks: their ranks in the whole communicator.
  // staging_bytes: per half.
  static Result<std::shared_ptr<NodeGroup>> Make(MPI_Comm comm, std::vector<int> ranks,
                                                 std::size_t staging_bytes);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] std::span<const int> ranks() const { return ranks_; }

  [[nodiscard]] NodeCounters& counters() const { return *counters_; }
  [[nodiscard]] std::span<BoardLine> board() const { return board_; }
  [[nodiscard]] BoardLine& own_line() const { return board_[static_cast<std::size_t>(rank_)]; }
  [[nodiscard]] std::vector<int> EndedLines() const { return peers_.Ended(); }

  [[nodiscard]] std::size_t staging_bytes() const { return staging_bytes_; }
  // Half 0 or 1 of the staging memory of a rank.
  [[nodiscard]] std::byte* staging(int local_rank, std::size_t half) const {
    return permanent_.segment(local_rank) + half * staging_bytes_;
  }

  // Collective. Returns the number of the new window, whose memory is not initialised.
  Result<int> AddWindow(std::size_t bytes);
  // Zeroes this rank's segment; this first touch also allocates its pages near the rank's core.
  void ZeroSegment(int window);
  [[nodiscard]] std::byte* window_segment(int window, int local_rank) const {
    return windows_[static_cast<std::size_t>(window)].memory.segment(local_rank);
  }
  // Returns the pages of this rank's segment to the system. Not collective.
  void ReleaseSegment(int window);

  // The place of `buffer` if it is in this rank's segment of a window, otherwise kPrivate.
  [[nodiscard]] std::int64_t FindPlace(ConstBuffer buffer) const;
  // The memory of a rank at a place other than kPrivate.
  [[nodiscard]] void* AtPlace(std::int64_t place, int local_rank) const;

 private:
  struct Window {
    SharedWindow memory;
    bool released = false;
  };
  NodeGroup(MPI_Comm comm, std::vector<int> ranks) : comm_(comm), ranks_(std::move(ranks)) {}
  Status InitBoard();

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<int> ranks_;
  int rank_ = 0;
  std::size_t staging_bytes_ = 0;
  SharedWindow permanent_;
  SharedWindow board_memory_;
  NodeCounters* counters_ = nullptr;
  std::span<BoardLine> board_;
  std::vector<Window> windows_;
  PeerProcesses peers_;
};

}  // namespace gaccd
