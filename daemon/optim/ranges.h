// OptimizerRanges: the ranges of the flat buffers that a step updates, each with one group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

// Elements [first, first + elements) of parameters and gradient; their state is [state_first,
// state_first + elements) in every state buffer.
struct OptimizerRange {
  std::int64_t first = 0;
  std::int64_t elements = 0;
  std::int64_t state_first = 0;
  OptimizerGroup group = {};
};

class OptimizerRanges {
 public:
  // Everything that is not frozen, including padding; neighbours with the same group are one range.
  [[nodiscard]] static OptimizerRanges Make(const FlatLayout& layout);
  // The same for one part: elements and state places count from its beginning.
  [[nodiscard]] static OptimizerRanges Make(const FlatLayout& layout, const ShardPart& part);
  // One range from 0 on, with the settings of the optimiser.
  [[nodiscard]] static OptimizerRanges One(std::int64_t elements);

  [[nodiscard]] std::span<const OptimizerRange> all() const { return ranges_; }
  // Elements of all ranges; for a layout its trainable_size().
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  std::vector<OptimizerRange> ranges_;
  std::int64_t elements_ = 0;
};

}  // namespace gaccd
