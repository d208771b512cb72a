// What the ranks send to each other in an update for the model, sharded or not: what the
// communicators count (Communicator::traffic()), by formula. With W ranks on K nodes, B bytes of
// parameters, S of the sums of squares of their blocks, which the norm is made of:
//
//   mode            all ranks send               of it between nodes
//   NONE            2 (W-1) B                    2 (K-1) B      B without the padding at its end
//   OPTIMIZER       (W-1) (2B + S)               what the parts of a node and ranks elsewhere share
//   NODE            (W-K) (2B + S) + 2 (K-1) B   2 (K-1) B
//   NODE_OPTIMIZER  (W-1) (2B + S)               (K-1) (2B + S)
#pragma once

#include <cstdint>
#include <span>

#include "collectives/comm/communicator.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// Of all ranks together. ranks_of_nodes: how many each has; the ranks of a node are neighbours.
// Without the message of losses and counts.
[[nodiscard]] CommTraffic TrafficOfUpdate(Sharding mode, const FlatLayout& layout,
                                          std::span<const int> ranks_of_nodes);

// Of an all-reduce of so many bytes.
[[nodiscard]] CommTraffic TrafficOfSum(std::int64_t bytes, std::span<const int> ranks_of_nodes);

}  // namespace gaccd
