// ShardGrid: the number of parts of a sharded optimiser's state, and the rank that owns each.
//
//   mode            parts                  rank `local` of node `node` owns part
//   NONE            1                      0
//   OPTIMIZER       ranks                  its rank in the world
//   NODE            lanes                  local
//   NODE_OPTIMIZER  lanes * nodes          local * nodes + node
//
// lanes: the number of ranks of the smallest node. On a larger node the ranks beyond that own
// nothing, so nodes may have different numbers of ranks. The parts of a lane are contiguous.
#pragma once

#include <span>

#include "daemon/config/job.h"

namespace gaccd {

struct ShardGrid {
  int lanes = 1;  // OPTIMIZER: the number of ranks
  int nodes = 1;  // NODE_OPTIMIZER: number of nodes that divide each lane; otherwise 1

  [[nodiscard]] int parts() const { return lanes * nodes; }

  // ranks_of_nodes: number of ranks of each node, at least 1.
  [[nodiscard]] static ShardGrid Make(Sharding mode, std::span<const int> ranks_of_nodes);
  // The same number of ranks on every node.
  [[nodiscard]] static ShardGrid Make(Sharding mode, int nodes, int ranks_of_each);
};

}  // namespace gaccd
