// ShardExchange: what the ranks exchange where each keeps the optimiser's state of its own part
// alone (daemon/tensor/shard_grid.h).
//
//   mode            a reduction                              a gather
//   OPTIMIZER       reduce-scatter of all ranks              of all ranks
//   NODE            reduce-scatter within the node, then     within the node
//                   all-reduce of the part between nodes
//   NODE_OPTIMIZER  reduce-scatter within the node, then     between nodes, then within the node
//                   of the part between nodes
//
// Between nodes the ranks with one local rank work together. Buffers are in memory of one kind,
// that of the host or of GPUs, where what exchanges is enqueued on `stream`. Used by one thread.
// What returns a Status is collective. A "whole" buffer has the elements of the layout; a whole
// state has those of StateElements(), this rank's own one those of its part, buffer after buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/tensor/shard_grid.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

// How many ranks each node has.
[[nodiscard]] std::vector<int> RanksOfNodes(const Topology& topology);

class ShardExchange {
 public:
  // state_buffers: values of state for each trainable element. Collective. `comm` outlives this.
  // REQUIRES: mode is not NONE; kCuda: comm.memory() is.
  static Result<std::unique_ptr<ShardExchange>> Make(Communicator& comm, Sharding mode,
                                                     const FlatLayout& layout,
                                                     std::int64_t state_buffers,
                                                     MemoryKind memory = MemoryKind::kHost);

  // Memory in which whole buffers are reduced and gathered without copies. Collective.
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) {
    return lanes_->Allocate(bytes);
  }

  // Empty beyond the lanes of the grid.
  [[nodiscard]] const ShardPart& own() const { return own_; }
  [[nodiscard]] std::span<float> Own(std::span<float> whole) const {
    return whole.subspan(static_cast<std::size_t>(own_.first),
                         static_cast<std::size_t>(own_.elements));
  }

  // The own part becomes the sum over the ranks; the others have no meaning any more.
  Status Reduce(std::span<float> whole);
  // The same for elements [first, first + count): of several that make up the whole each element is
  // sent once.
  Status Reduce(std::span<float> whole, std::int64_t first, std::int64_t count,
                StreamHandle stream = {});
  // All parts become what their owners have.
  Status Gather(std::span<float> whole, StreamHandle stream = {}) const;

  // Sums of squares by block: how many there are, where the own ones lie among them, and a gather
  // of all.
  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  [[nodiscard]] std::span<double> OwnSquares(std::span<double> squares) const;
  Status GatherSquares(std::span<double> squares, StreamHandle stream = {}) const;
  // Of host memory: SumOfSquares() of all parts, with the bits that it has for a whole buffer.
  Result<double> SumOfSquares(std::span<const float> own_part);

  // Elements [first, first + out.size()) of the whole state, which every rank chooses for itself,
  // on the host. All of it is gathered into `piece`, one after another; copy(from, to) copies what
  // was asked for out of it.
  using CopyOut = std::function<Status(std::span<const float> from, std::span<float> to)>;
  Status GatherState(std::span<const float> own_state, std::int64_t first, std::span<float> out,
                     std::span<float> piece, const CopyOut& copy, StreamHandle stream = {}) const;
  // Of host memory.
  Status GatherState(std::span<const float> own_state, std::int64_t first,
                     std::span<float> out) const;
  // Elements of `piece`: 1 MiB, or less where there is less of state.
  [[nodiscard]] std::int64_t piece_elements() const;

 private:
  ShardExchange(const ShardGrid& grid, const FlatLayout& layout, std::int64_t state_buffers,
                MemoryKind memory);
  Status Connect(Communicator& comm, Sharding mode);

  [[nodiscard]] bool owns_lane() const { return lane_ < grid_.lanes; }
  // Of something that is counted by part: the counts of the own lane; and of all, by rank of
  // lanes_.
  [[nodiscard]] std::span<const std::int64_t> CountsOfOwnLane(
      std::span<const std::int64_t> by_part) const;
  [[nodiscard]] std::vector<std::int64_t> CountsOfLanes(
      std::span<const std::int64_t> by_part) const;
  // The same of values: counts has those of each part, whole all of them.
  template <typename T>
  [[nodiscard]] std::span<T> OwnLane(std::span<T> whole,
                                     std::span<const std::int64_t> counts) const;
  template <typename T>
  [[nodiscard]] std::span<T> OwnPart(std::span<T> whole,
                                     std::span<const std::int64_t> counts) const;
  // own: of this rank, in its place in `whole` or apart from it.
  template <typename T>
  Status GatherParts(std::span<const T> own, std::span<const std::int64_t> counts,
                     std::span<T> whole, StreamHandle stream) const;
  template <typename T>
  [[nodiscard]] ConstBuffer Of(std::span<const T> values) const {
    return {values.data(), values.size(), DTypeOf<T>, memory_};
  }
  template <typename T>
  [[nodiscard]] MutableBuffer Of(std::span<T> values) const {
    return {values.data(), values.size(), DTypeOf<T>, memory_};
  }

  const ShardGrid grid_;
  const ShardLayout shards_;
  const std::int64_t trainable_;
  const std::int64_t state_buffers_;
  const MemoryKind memory_;
  Communicator* lanes_ = nullptr;          // rank l of it has lane l, if there is one
  std::unique_ptr<Communicator> within_;   // lanes_, if it is that of a node
  std::unique_ptr<Communicator> between_;  // those with this lane; null: one node, or no lane
  int lane_ = 0;
  std::size_t part_ = 0;  // of the layout; of no meaning beyond the lanes
  ShardPart own_;
  std::int64_t blocks_ = 0;
  std::vector<double> squares_;  // on the host
};

}  // namespace gaccd
