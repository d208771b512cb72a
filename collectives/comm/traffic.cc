#include "collectives/comm/traffic.h"

#include <algorithm>
#include <vector>

#include "collectives/comm/sum.h"

namespace gaccd {
namespace {

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

}  // namespace

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

CommTraffic AllGatherTraffic(const Topology& topology, const ConstBuffer& own) {
  return ToAll(topology, static_cast<std::int64_t>(own.bytes()));
}

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

}  // namespace gaccd
