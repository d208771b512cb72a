// Bytes that one rank sends in an operation of a communicator.
//
// Reduce-scatter: all others send each part to its owner, which sums it. All-reduce on one node:
// rank r sums WorkerSlice(count, r, ranks) and sends it to all. All-reduce on several nodes has two
// levels, as in the MPI communicator: on every node the first n ranks, n being the size of the
// smallest node, sum one slice each inside the node; the ranks with the same slice all-reduce it
// between nodes; then it is sent to all ranks of the node. Gather and broadcast send to every other
// rank. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/base/buffer.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

[[nodiscard]] CommTraffic AllReduceTraffic(const Topology& topology, int rank, std::size_t count,
                                           DType dtype);
// own: the part of this rank.
[[nodiscard]] CommTraffic AllGatherTraffic(const Topology& topology, const ConstBuffer& own);
// counts: elements by rank.
[[nodiscard]] CommTraffic ReduceScatterTraffic(const Topology& topology, int rank,
                                               std::span<const std::int64_t> counts, DType dtype);
[[nodiscard]] CommTraffic BroadcastTraffic(const Topology& topology, int rank, int root,
                                           const ConstBuffer& buffer);
[[nodiscard]] CommTraffic SendTraffic(const Topology& topology, int rank, int to,
                                      const ConstBuffer& message);

}  // namespace gaccd
