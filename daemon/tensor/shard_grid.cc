#include "daemon/tensor/shard_grid.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace gaccd {

ShardGrid ShardGrid::Make(Sharding mode, std::span<const int> ranks_of_nodes) {
  const int smallest = *std::ranges::min_element(ranks_of_nodes);
  switch (mode) {
    case Sharding::kNone:
      return {};
    case Sharding::kOptimizer:
      return {.lanes = std::reduce(ranks_of_nodes.begin(), ranks_of_nodes.end())};
    case Sharding::kNode:
      return {.lanes = smallest};
    case Sharding::kNodeOptimizer:
      return {.lanes = smallest, .nodes = static_cast<int>(ranks_of_nodes.size())};
  }
  return {};
}

ShardGrid ShardGrid::Make(Sharding mode, int nodes, int ranks_of_each) {
  return Make(mode, std::vector<int>(static_cast<std::size_t>(nodes), ranks_of_each));
}

}  // namespace gaccd
