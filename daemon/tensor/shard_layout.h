// ShardLayout: the parts of the flat buffers of a sharded optimiser (job: shard);
// ShardGrid assigns them to ranks. Parts are contiguous, cover the buffer, and begin at blocks:
// part p begins at the first block that has at least p / parts of the trainable elements before it.
// So the state of each part, which frozen parameters do not have, is 1 / parts of the whole, up to
// one block. A part may be empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

struct ShardPart {
  std::int64_t first = 0;  // index of the first element in the flat buffers
  std::int64_t elements = 0;
  // The trainable elements of the part: their places in every buffer of the optimiser's state.
  std::int64_t state_first = 0;
  std::int64_t state_elements = 0;

  // For a part whose places count from the beginning of `whole`: the same, counted as in `whole`.
  [[nodiscard]] ShardPart ShiftedBy(const ShardPart& whole) const {
    return {whole.first + first, elements, whole.state_first + state_first, state_elements};
  }

  friend bool operator==(const ShardPart&, const ShardPart&) = default;
};

// The entries of a part that begins and ends at entries, as a separate layout, whose elements and
// state places count from the beginning of the part.
[[nodiscard]] Result<FlatLayout> PartLayout(const FlatLayout& layout, const ShardPart& part);

class ShardLayout {
 public:
  // REQUIRES: parts > 0.
  [[nodiscard]] static ShardLayout Make(const FlatLayout& layout, int parts);

  [[nodiscard]] std::span<const ShardPart> parts() const { return parts_; }
  // The largest number of state elements of a part.
  [[nodiscard]] std::int64_t max_state_elements() const;
  // By part, as collectives need them: elements, and blocks of FlatLayout::kBlock.
  [[nodiscard]] std::span<const std::int64_t> elements() const { return elements_; }
  [[nodiscard]] std::span<const std::int64_t> blocks() const { return blocks_; }

 private:
  std::vector<ShardPart> parts_;
  std::vector<std::int64_t> elements_;
  std::vector<std::int64_t> blocks_;
};

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
