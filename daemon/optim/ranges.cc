#include "daemon/optim/ranges.h"

#include <algorithm>

namespace gaccd {

OptimizerRanges OptimizerRanges::Make(const FlatLayout& layout) {
  return Make(layout, {.elements = layout.size()});
}

OptimizerRanges OptimizerRanges::Make(const FlatLayout& layout, const ShardPart& part) {
  OptimizerRanges ranges;
  for (const FlatEntry& entry : layout.entries()) {
    const std::int64_t first = std::max(entry.offset - part.first, std::int64_t{0});
    const std::int64_t end =
        std::min(entry.offset + entry.padded_elements() - part.first, part.elements);
    if (entry.frozen || first >= end) continue;
    const std::int64_t elements = end - first;
    OptimizerRange* last = ranges.ranges_.empty() ? nullptr : &ranges.ranges_.back();
    if (last != nullptr && last->group == entry.group && last->first + last->elements == first) {
      last->elements += elements;
    } else {
      ranges.ranges_.push_back({first, elements, ranges.elements_, entry.group});
    }
    ranges.elements_ += elements;
  }
  return ranges;
}

OptimizerRanges OptimizerRanges::One(std::int64_t elements) {
  OptimizerRanges ranges;
  ranges.elements_ = elements;
  ranges.ranges_.push_back({.elements = elements});
  return ranges;
}

}  // namespace gaccd
