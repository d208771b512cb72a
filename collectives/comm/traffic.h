// What an operation of a communicator moves between the ranks, in bytes of one rank.
//
// A sum is made by parts: of a reduce-scatter its owner makes each, from what all others send it;
// of an all-reduce on one node rank r makes SliceOf(count, r, ranks) and sends it to all. On
// several nodes an all-reduce has two levels, as that of MPI: of every node the first ranks, as
// many as the smallest node has, each make a slice inside their node, then those with the same
// slice an all-reduce of it between the nodes, then it is sent to all ranks of the node. A gather
// and a broadcast send to every other rank. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/base/buffer.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

[[nodiscard]] CommTraffic TrafficOfAllReduce(const Topology& topology, int rank, std::size_t count,
                                             DType dtype);
// own: what this rank gives.
[[nodiscard]] CommTraffic TrafficOfAllGather(const Topology& topology, const ConstBuffer& own);
// counts: elements by rank.
[[nodiscard]] CommTraffic TrafficOfReduceScatter(const Topology& topology, int rank,
                                                 std::span<const std::int64_t> counts, DType dtype);
[[nodiscard]] CommTraffic TrafficOfBroadcast(const Topology& topology, int rank, int root,
                                             const ConstBuffer& buffer);
[[nodiscard]] CommTraffic TrafficOfSend(const Topology& topology, int rank, int to,
                                        const ConstBuffer& message);

}  // namespace gaccd
