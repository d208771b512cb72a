// ShardGrid: into how many parts the optimiser's state is divided, and which rank owns which.
//
//   mode            parts                  rank `local` of node `node` owns part
//   NONE            1                      0
//   OPTIMIZER       ranks                  its rank in the world
//   NODE            lanes                  local
//   NODE_OPTIMIZER  lanes * nodes          local * nodes + node
//
// lanes: as many as the smallest node has ranks. On a larger node the ranks beyond them own
// nothing, so nodes may have any numbers of ranks. The parts of a lane are neighbours.
#pragma once

#include <span>

#include "daemon/config/job.h"

namespace gaccd {

struct ShardGrid {
  int lanes = 1;  // of OPTIMIZER: one for each rank
  int nodes = 1;  // among which each lane is divided; of NODE_OPTIMIZER, else 1

  [[nodiscard]] int parts() const { return lanes * nodes; }

  // ranks_of_nodes: how many each node has, at least one.
  [[nodiscard]] static ShardGrid Of(Sharding mode, std::span<const int> ranks_of_nodes);
  // The same number on every node.
  [[nodiscard]] static ShardGrid Of(Sharding mode, int nodes, int ranks_of_each);
};

}  // namespace gaccd
