// The communicator between processes: MPI between nodes, shared memory inside a node. Most code
// should use MakeMpi() of collectives/bootstrap/mpi_session.h. Transport of each operation:
//
//   operation        one node                              several nodes
//   all-reduce       Allocate() memory: each rank sums     two levels: each lane (the l-th ranks of
//                    its slice and writes it to all        all nodes) sums slice l inside the node,
//                    other: through staging memory         then between nodes by MPI, then writes
//                                                          it to all ranks of its node
//   reduce-scatter   Allocate() memory: each rank sums     non-blocking MPI collectives
//                    its part; other: staging memory
//   all-gather       Allocate() memory: each rank writes   non-blocking MPI collectives
//                    its part to all; other: staging
//   all others       through staging memory                non-blocking MPI collectives
//   messages         non-blocking MPI messages             the same
//
// On one node an all-reduce of up to 16 KiB is through staging memory: every rank sums all of it.
// bf16 between nodes is added as f32 in a separate buffer, as MPI has no bf16.
//
// Staging memory has two halves, used alternately (NextHalf), with at least one barrier between
// writing a half and reading it. A half is only overwritten after every rank has passed the barrier
// of the use in between, so all have finished reading it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "collectives/comm/mpi_handles.h"
#include "collectives/comm/mpi_watch.h"
#include "collectives/comm/node_group.h"
#include "collectives/comm/sum.h"

namespace gaccd {

// Messages being sent: MPI progresses them only during calls. Keeps a copy of each until it is
// sent. Used by one thread.
class MpiSends {
 public:
  // Starts sending a copy of the message, in pieces of kPieceBytes.
  Status Add(MPI_Comm comm, const ConstBuffer& message, int to);
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // MPI's counts are int
  // Makes MPI progress; removes sent messages from the front.
  Status Move();
  [[nodiscard]] bool empty() const { return under_way_.empty(); }

 private:
  struct UnderWay {
    std::vector<std::byte> copy;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::deque<UnderWay> under_way_;
};

class MpiCommunicator final : public Communicator {
 public:
  // Collective over group.comm. kConfig if the ranks have different options. If a rank does not
  // arrive within options.bound, the process exits with code 69, as MPI set-up calls have no time
  // limit.
  static Result<std::unique_ptr<Communicator>> Make(const MpiGroup& group,
                                                    const CommOptions& options);

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] const Topology& topology() const override { return topology_; }
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) override;
  Status Barrier() override;
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override;
  Status Poll() override;
  [[nodiscard]] std::optional<CommFailure> failure() const override { return watch_->lost(); }
  Status FlushSends() override;
  void Abort(int exit_code) noexcept override;

 private:
  MpiCommunicator(const MpiGroup& group, const CommOptions& options);
  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override;
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle stream) override;
  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                         StreamHandle stream) override;
  Status DoBroadcast(MutableBuffer buffer, int root, StreamHandle stream) override;
  // Defined in mpi_messages.cc.
  Status DoSend(ConstBuffer message, int to, StreamHandle stream) override;
  Status DoReceive(MutableBuffer message, int from, StreamHandle stream) override;
  Status ReceivePiece(std::span<std::byte> piece, int from);
  Status ExchangeTopology(const MpiGroup& group);
  Status MakeParts(const MpiGroup& group);

  // Marks the session broken, and returns `status` as every later operation will.
  Status Break(Status status) {
    broken_->store(true);
    return watch_->Fail(std::move(status));
  }
  // Runs `body` as one operation: publishes it, and marks the session broken if it fails.
  template <typename Body>
  Status Run(Operation operation, std::uint64_t shape, std::int64_t place, Body body);
  // A barrier before set-up calls, which MPI cannot time out.
  Status BarrierAll();

  // Defined in mpi_all_reduce.cc.
  Status ReduceSmall(ConstBuffer in, MutableBuffer out);
  Status ReduceInPlace(MutableBuffer data, std::int64_t place);
  Status ReduceStaged(ConstBuffer in, MutableBuffer out);
  struct PendingReduce;
  Status ReduceTwoLevels(ConstBuffer in, MutableBuffer out, std::int64_t place);
  Status BeginLane(PendingReduce* pending, DType dtype);
  Status FinishLane(PendingReduce* pending, MutableBuffer out, bool staged);

  // Defined in mpi_gather_scatter.cc.
  Status GatherOnNode(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                      std::int64_t place);
  Status GatherInPlace(std::int64_t place, std::span<const std::int64_t> counts, DType dtype);
  Status ScatterOnNode(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                       std::int64_t place);
  Status ScatterInPlace(std::int64_t place, std::size_t begin, MutableBuffer out);
  Status BroadcastOnNode(MutableBuffer buffer, int root);

  // Defined in mpi_gather_scatter.cc.
  Status GatherAcross(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out);
  Status ScatterAcross(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out);
  Status BroadcastAcross(MutableBuffer buffer, int root);
  Status Finish(int code, MPI_Request* request, std::string_view what);

  [[nodiscard]] bool one_node() const { return topology_.nodes == 1; }
  [[nodiscard]] std::size_t NextHalf() { return staging_uses_++ & 1; }
  // Elements moved through staging memory at once.
  [[nodiscard]] std::size_t StagedElements(DType dtype) const;
  // The same half of all ranks of the node, by local rank.
  [[nodiscard]] std::span<void* const> NodeStaging(std::size_t half);

  const CommOptions options_;
  const bool oversubscribed_;
  const bool sleeps_;
  const std::shared_ptr<std::atomic<bool>> broken_;
  std::string host_;
  int rank_ = 0;
  int size_ = 1;
  std::size_t segment_ = 1;
  Topology topology_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Comm lane_comm_ =
      MPI_COMM_NULL;  // the ranks with this local rank, one per node; null beyond the lanes
  int lanes_ = 1;     // the smallest number of ranks on a node
  std::shared_ptr<NodeGroup> node_;
  std::unique_ptr<MpiWatch> watch_;
  std::size_t staging_uses_ = 0;
  std::vector<void*> copies_;  // scratch: one pointer per local rank
  std::vector<std::byte> packed_;
  MpiSends sends_;
};

// A hash of the arguments that must be equal on all ranks.
[[nodiscard]] std::uint64_t HashShape(std::initializer_list<std::uint64_t> words);
[[nodiscard]] std::uint64_t HashShape(std::span<const std::int64_t> counts, DType dtype);

template <typename Body>
Status MpiCommunicator::Run(Operation operation, std::uint64_t shape, std::int64_t place,
                            Body body) {
  Status status = watch_->Enter(operation, shape, place);
  if (status.ok()) status = body();
  if (status.ok()) {
    watch_->Exit();
    return status;
  }
  return Break(std::move(status));
}

}  // namespace gaccd
