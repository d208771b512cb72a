// ShardExchange: communication of a sharded optimiser, where each rank keeps the state of its own
// part only (daemon/tensor/shard_layout.h).
//
//   mode            a reduction                              a gather
//   OPTIMIZER       reduce-scatter over all ranks            over all ranks
//   NODE            reduce-scatter within the node, then     within the node
//                   all-reduce of the part between nodes
//   NODE_OPTIMIZER  reduce-scatter within the node, then     between nodes, then within the node
//                   of the part between nodes
//
// Between nodes, the ranks with the same local rank communicate. Buffers are either all in host
// memory or all in GPU memory; on GPUs the communication is enqueued on `stream`. Used by one
// thread. What every update sends is recorded in an UpdateGraph; it must not outlive this. Other
// functions that return a Status are collective. A "whole" buffer has the elements of the layout. A
// whole state has StateElements() elements; a rank's own state has those of its part. Both are
// stored buffer after buffer.
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
#include "daemon/engine/update_graph.h"
#include "daemon/replica/pipeline_stage.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

// Number of ranks of each node.
[[nodiscard]] std::vector<int> CountRanksByNode(const Topology& topology);

class ShardExchange {
 public:
  // state_buffers: state values per trainable element. Collective. `comm` must outlive this.
  // REQUIRES: mode is not NONE; for kCuda, comm.memory() is kCuda.
  static Result<std::unique_ptr<ShardExchange>> Make(Communicator& comm, Sharding mode,
                                                     const FlatLayout& layout,
                                                     std::int64_t state_buffers,
                                                     MemoryKind memory = MemoryKind::kHost);

  // Memory in which whole buffers are reduced and gathered without copies. Collective.
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) {
    return lanes_->Allocate(bytes);
  }

  // Empty if this rank's lane is beyond the lanes of the grid.
  [[nodiscard]] const ShardPart& own() const { return own_; }
  [[nodiscard]] std::span<float> Own(std::span<float> whole) const {
    return whole.subspan(static_cast<std::size_t>(own_.first),
                         static_cast<std::size_t>(own_.elements));
  }

  // Records the sum of the own part over the ranks; the other parts become undefined.
  Status RecordReduce(UpdateGraph& graph, std::span<float> whole, StreamHandle stream = {}) const;
  // The same for elements [first, first + count). If several calls cover the whole buffer, each
  // element is sent once.
  Status RecordReduce(UpdateGraph& graph, std::span<float> whole, std::int64_t first,
                      std::int64_t count, StreamHandle stream = {}) const;
  // Records the copies of all parts from their owners.
  Status RecordGather(UpdateGraph& graph, std::span<float> whole, StreamHandle stream = {}) const;

  // Sums of squares by block: the number of blocks, this rank's blocks in the array of all, and a
  // gather of all.
  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  [[nodiscard]] std::span<double> OwnSquares(std::span<double> squares) const;
  Status RecordGatherSquares(UpdateGraph& graph, std::span<double> squares,
                             StreamHandle stream = {}) const;

  // Copies elements [first, first + out.size()) of the whole state to the host; every rank chooses
  // its range. The whole state is gathered into `piece`, one piece after another; copy(from, to)
  // copies the requested elements out of it.
  using CopyOut = std::function<Status(std::span<const float> from, std::span<float> to)>;
  Status GatherState(std::span<const float> own_state, std::int64_t first, std::span<float> out,
                     std::span<float> piece, const CopyOut& copy, StreamHandle stream = {}) const;
  // Host memory only.
  Status GatherState(std::span<const float> own_state, std::int64_t first,
                     std::span<float> out) const;
  // Elements of `piece`: 1 MiB, or the size of the state if that is smaller.
  [[nodiscard]] std::int64_t piece_elements() const;

 private:
  ShardExchange(const ShardGrid& grid, const FlatLayout& layout, std::int64_t state_buffers,
                MemoryKind memory);
  Status Connect(Communicator& comm, Sharding mode);

  [[nodiscard]] bool owns_lane() const { return lane_ < grid_.lanes; }
  // by_part: a count for each part. Returns the counts of the own lane, or the sums for all lanes,
  // by rank of lanes_.
  [[nodiscard]] std::span<const std::int64_t> OwnLaneCounts(
      std::span<const std::int64_t> by_part) const;
  [[nodiscard]] std::vector<std::int64_t> LaneCounts(std::span<const std::int64_t> by_part) const;
  // The same for values: counts has the number of values of each part, whole all values.
  template <typename T>
  [[nodiscard]] std::span<T> OwnLane(std::span<T> whole,
                                     std::span<const std::int64_t> counts) const;
  template <typename T>
  [[nodiscard]] std::span<T> OwnPart(std::span<T> whole,
                                     std::span<const std::int64_t> counts) const;
  template <typename T>
  Status RecordGatherParts(UpdateGraph& graph, std::span<const std::int64_t> counts,
                           std::span<T> whole, StreamHandle stream) const;
  // own: the values of this rank, in separate memory.
  Status GatherParts(std::span<const float> own, std::span<const std::int64_t> counts,
                     std::span<float> whole, StreamHandle stream) const;
  template <typename T>
  [[nodiscard]] ConstBuffer AsBuffer(std::span<const T> values) const {
    return {values.data(), values.size(), DTypeOf<T>, memory_};
  }
  template <typename T>
  [[nodiscard]] MutableBuffer AsBuffer(std::span<T> values) const {
    return {values.data(), values.size(), DTypeOf<T>, memory_};
  }

  const ShardGrid grid_;
  const ShardLayout shards_;
  const std::int64_t trainable_;
  const std::int64_t state_buffers_;
  const MemoryKind memory_;
  Communicator* lanes_ = nullptr;          // rank l has lane l, if it exists
  std::unique_ptr<Communicator> within_;   // lanes_, if it is the communicator of a node
  std::unique_ptr<Communicator> between_;  // ranks with the same lane; null: one node, or no lane
  int lane_ = 0;
  std::size_t part_ = 0;  // of the layout; undefined beyond the lanes
  ShardPart own_;
  std::int64_t blocks_ = 0;
};

// Formulas for the bytes that the ranks send in an update of the model, with and without sharding,
// as counted by the communicators (Communicator::traffic()). W ranks on K nodes, B bytes of
// parameters, S bytes of the sums of squares of their blocks, from which the norm is computed:
//
//   mode            sent by all ranks            of that, between nodes
//   NONE            2 (W-1) B                    2 (K-1) B      B without the padding at its end
//   OPTIMIZER       (W-1) (2B + S)               between parts and ranks of other nodes
//   NODE            (W-K) (2B + S) + 2 (K-1) B   2 (K-1) B
//   NODE_OPTIMIZER  (W-1) (2B + S)               (K-1) (2B + S)

// Sum over all ranks, without the message of losses and counts. ranks_of_nodes: number of ranks of
// each node; the ranks of a node are consecutive.
[[nodiscard]] CommTraffic UpdateTraffic(Sharding mode, const FlatLayout& layout,
                                        std::span<const int> ranks_of_nodes);

// The same for a pipeline stage, summed over its ranks, one per pipeline. These ranks reduce the
// gradients (unsharded: with the padding). In each pipeline, stages gather norms; parameters that
// several stages share are summed and broadcast, and these stages count equal parts of that.
// Without the messages of activations. kConfig: see PartLayout().
Result<CommTraffic> StageTraffic(Sharding mode, const FlatLayout& layout,
                                 const PipelineStage& stage, std::span<const int> ranks_of_nodes);

// Traffic of an all-reduce of this many bytes.
[[nodiscard]] CommTraffic SumTraffic(std::int64_t bytes, std::span<const int> ranks_of_nodes);

}  // namespace gaccd
