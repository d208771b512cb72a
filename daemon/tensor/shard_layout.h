// ShardLayout: the parts of the flat buffers where the optimiser is sharded (job: shard); which
// rank owns which: shard_grid.h. They are neighbours, cover the buffer, and begin at blocks: part p
// at the first block before which at least p / parts of the trainable elements lie. So the state of
// a part, which frozen parameters have none of, is 1 / parts of the whole within a block. A part
// may be empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/tensor/flat_layout.h"

namespace gaccd {

struct ShardPart {
  std::int64_t first = 0;  // element of the flat buffers
  std::int64_t elements = 0;
  // Of those the trainable ones: their places in every buffer of the optimiser's state.
  std::int64_t state_first = 0;
  std::int64_t state_elements = 0;

  friend bool operator==(const ShardPart&, const ShardPart&) = default;
};

// The entries of a part that begins and ends with one, as a layout of their own: elements and
// places in the state count from its beginning.
[[nodiscard]] Result<FlatLayout> LayoutOfPart(const FlatLayout& layout, const ShardPart& part);

class ShardLayout {
 public:
  // REQUIRES: parts > 0.
  [[nodiscard]] static ShardLayout Make(const FlatLayout& layout, int parts);

  [[nodiscard]] std::span<const ShardPart> parts() const { return parts_; }
  // Of the part that has the most.
  [[nodiscard]] std::int64_t most_state_elements() const;
  // By part, as collectives ask for them: elements, and blocks of FlatLayout::kBlock.
  [[nodiscard]] std::span<const std::int64_t> elements() const { return elements_; }
  [[nodiscard]] std::span<const std::int64_t> blocks() const { return blocks_; }

 private:
  std::vector<ShardPart> parts_;
  std::vector<std::int64_t> elements_;
  std::vector<std::int64_t> blocks_;
};

}  // namespace gaccd
