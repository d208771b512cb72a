// OptimizerRanges: how a step goes through the flat buffers: pieces that are treated alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {

// Elements [first, first + elements) of parameters and gradient, which have
// [state_first, state_first + elements) in every buffer of the state.
struct OptimizerRange {
  std::int64_t first = 0;
  std::int64_t elements = 0;
  std::int64_t state_first = 0;
  OptimizerGroup group = {};
};

class OptimizerRanges {
 public:
  // Everything that is not frozen, with its padding; neighbours of one group are one range.
  [[nodiscard]] static OptimizerRanges Of(const FlatLayout& layout);
  // The same of one part: elements and places in the state count from its beginning.
  [[nodiscard]] static OptimizerRanges Of(const FlatLayout& layout, const ShardPart& part);
  // One range from 0 on, treated as the optimiser says.
  [[nodiscard]] static OptimizerRanges One(std::int64_t elements);

  [[nodiscard]] std::span<const OptimizerRange> all() const { return ranges_; }
  // Elements of all ranges: of a layout its trainable_size().
  [[nodiscard]] std::int64_t elements() const { return elements_; }

 private:
  std::vector<OptimizerRange> ranges_;
  std::int64_t elements_ = 0;
};

}  // namespace gaccd
