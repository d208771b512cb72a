#include "collectives/comm/communicator.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/comm/checks.h"
#include "collectives/comm/sum.h"

namespace gaccd {
namespace {

// Bytes that one rank sends in an operation of a communicator.
//
// Reduce-scatter: all others send each part to its owner, which sums it. All-reduce on one node:
// rank r sums WorkerSlice(count, r, ranks) and sends it to all. All-reduce on several nodes has two
// levels, as in the MPI communicator: on every node the first n ranks, n being the size of the
// smallest node, sum one slice each inside the node; the ranks with the same slice all-reduce it
// between nodes; then it is sent to all ranks of the node. Gather and broadcast send to every other
// rank.

int NodeIndex(const Topology& topology, int rank) {
  return topology.node_of[static_cast<std::size_t>(rank)];
}

int SmallestNode(const Topology& topology) {
  if (topology.nodes == 1) return topology.local_size;
  std::vector<int> ranks(static_cast<std::size_t>(topology.nodes));
  for (const int node : topology.node_of) ++ranks[static_cast<std::size_t>(node)];
  return *std::ranges::min_element(ranks);
}

// A rank sends `bytes` to all others.
CommTraffic ToAll(const Topology& topology, std::int64_t bytes) {
  const std::int64_t ranks = std::ssize(topology.node_of);
  return {.sent = bytes * (ranks - 1), .between_nodes = bytes * (ranks - topology.local_size)};
}

// Bytes for an all-reduce of `count` elements among `workers`, each of which sums one slice.
std::int64_t SentInReduction(std::size_t count, int index, int workers) {
  const std::size_t own = WorkerSlice(count, index, workers).count;
  return static_cast<std::int64_t>(count - own + own * static_cast<std::size_t>(workers - 1));
}

CommTraffic AllReduceTraffic(const Topology& topology, int rank, std::size_t count, DType dtype) {
  const int lanes = SmallestNode(topology);
  const bool makes_a_slice = topology.local_rank < lanes;
  const std::size_t own =
      makes_a_slice ? WorkerSlice(count, topology.local_rank, lanes).count : std::size_t{0};
  const std::size_t within = count - own + own * static_cast<std::size_t>(topology.local_size - 1);
  const std::int64_t between = SentInReduction(own, NodeIndex(topology, rank), topology.nodes);
  const auto width = static_cast<std::int64_t>(SizeOf(dtype));
  return {.sent = (static_cast<std::int64_t>(within) + between) * width,
          .between_nodes = between * width};
}

// own: the part of this rank.
CommTraffic AllGatherTraffic(const Topology& topology, const ConstBuffer& own) {
  return ToAll(topology, static_cast<std::int64_t>(own.bytes()));
}

// counts: elements by rank.
CommTraffic ReduceScatterTraffic(const Topology& topology, int rank,
                                 std::span<const std::int64_t> counts, DType dtype) {
  const auto width = static_cast<std::int64_t>(SizeOf(dtype));
  CommTraffic traffic;
  for (std::size_t peer = 0; peer < counts.size(); ++peer) {
    const bool far = topology.node_of[peer] != NodeIndex(topology, rank);
    if (static_cast<int>(peer) != rank) traffic.sent += counts[peer] * width;
    if (far) traffic.between_nodes += counts[peer] * width;
  }
  return traffic;
}

CommTraffic BroadcastTraffic(const Topology& topology, int rank, int root,
                             const ConstBuffer& buffer) {
  return rank == root ? ToAll(topology, static_cast<std::int64_t>(buffer.bytes())) : CommTraffic{};
}

CommTraffic SendTraffic(const Topology& topology, int rank, int to, const ConstBuffer& message) {
  const auto bytes = static_cast<std::int64_t>(message.bytes());
  return {.sent = bytes,
          .between_nodes = NodeIndex(topology, rank) == NodeIndex(topology, to) ? 0 : bytes};
}

// On a device, empty operations are not enqueued; on the host they are still barriers.
bool IsNothing(const ConstBuffer& all) { return all.memory != MemoryKind::kHost && all.count == 0; }

class HostMemory final : public CommMemory {
 public:
  HostMemory(HostBuffer buffer, std::size_t bytes) : buffer_(std::move(buffer)), bytes_(bytes) {}

  [[nodiscard]] void* data() const override { return buffer_.data(); }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  HostBuffer buffer_;
  std::size_t bytes_;
};

}  // namespace

template <typename Traffic>
Status Communicator::Count(Status done, const Traffic& traffic) {
  if (done.ok() && size() > 1) {
    const CommTraffic added = traffic();
    traffic_->sent += added.sent;
    traffic_->between_nodes += added.between_nodes;
  }
  return done;
}

Status Communicator::AllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status valid = CheckAllReduce(in, out, KindFor(in.memory));
  if (!valid.ok()) return Refuse(std::move(valid));
  if (IsNothing(in)) return Status::Ok();
  return Count(DoAllReduceSum(in, out, stream),
               [&] { return AllReduceTraffic(topology(), rank(), in.count, in.dtype); });
}

Status Communicator::AllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  for (const MutableBuffer& buffer : buffers) {
    Status valid = CheckAllReduce(buffer, buffer, KindFor(buffers.front().memory));
    if (!valid.ok()) return Refuse(std::move(valid));
  }
  if (std::ranges::all_of(buffers, IsNothing)) return Status::Ok();
  return Count(DoAllReduceSums(buffers, stream), [&] {
    CommTraffic all;
    for (const MutableBuffer& buffer : buffers) {
      all += AllReduceTraffic(topology(), rank(), buffer.count, buffer.dtype);
    }
    return all;
  });
}

Status Communicator::DoAllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream) {
  for (const MutableBuffer& buffer : buffers) {
    GACCD_RETURN_IF_ERROR(DoAllReduceSum(buffer, buffer, stream));
  }
  return Status::Ok();
}

Status Communicator::AllGather(ConstBuffer in, std::span<const std::int64_t> counts,
                               MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status valid = CheckAllGather(in, counts, out, rank(), size(), KindFor(in.memory));
  if (!valid.ok()) return Refuse(std::move(valid));
  if (IsNothing(out)) return Status::Ok();
  return Count(DoAllGather(in, counts, out, stream),
               [&] { return AllGatherTraffic(topology(), in); });
}

Status Communicator::ReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                   MutableBuffer out, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status valid = CheckReduceScatter(in, counts, out, rank(), size(), KindFor(in.memory));
  if (!valid.ok()) return Refuse(std::move(valid));
  if (IsNothing(in)) return Status::Ok();
  return Count(DoReduceScatter(in, counts, out, stream),
               [&] { return ReduceScatterTraffic(topology(), rank(), counts, in.dtype); });
}

Status Communicator::Broadcast(MutableBuffer buffer, int root, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status valid = CheckBroadcast(buffer, root, size(), KindFor(buffer.memory));
  if (!valid.ok()) return Refuse(std::move(valid));
  if (IsNothing(buffer)) return Status::Ok();
  return Count(DoBroadcast(buffer, root, stream),
               [&] { return BroadcastTraffic(topology(), rank(), root, buffer); });
}

Status Communicator::Send(ConstBuffer message, int to, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status valid = CheckMessage("send", message, KindFor(message.memory), to, rank(), size());
  if (!valid.ok()) return Refuse(std::move(valid));
  if (IsNothing(message)) return Status::Ok();
  return Count(DoSend(message, to, stream),
               [&] { return SendTraffic(topology(), rank(), to, message); });
}

Status Communicator::Receive(MutableBuffer message, int from, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(FirstFailure());
  Status valid = CheckMessage("receive", message, KindFor(message.memory), from, rank(), size());
  if (!valid.ok()) return Refuse(std::move(valid));
  return IsNothing(message) ? Status::Ok() : DoReceive(message, from, stream);
}

Status Communicator::DoSend(ConstBuffer /*message*/, int /*to*/, StreamHandle /*stream*/) {
  return {ErrorKind::kInternal, StrCat(name(), ": has no messages between two ranks")};
}

Status Communicator::DoReceive(MutableBuffer /*message*/, int /*from*/, StreamHandle /*stream*/) {
  return {ErrorKind::kInternal, StrCat(name(), ": has no messages between two ranks")};
}

Result<std::unique_ptr<CommMemory>> AllocateHostMemory(std::size_t bytes) {
  // Not empty: data() is an address, also of 0 bytes.
  GACCD_ASSIGN_OR_RETURN(
      auto buffer, HostBuffer::Allocate(std::max<std::size_t>(bytes, 1), "exchanged buffers"));
  return std::unique_ptr<CommMemory>(std::make_unique<HostMemory>(std::move(buffer), bytes));
}

}  // namespace gaccd
