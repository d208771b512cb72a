#include "daemon/optim/ranges.h"

namespace gaccd {

OptimizerRanges OptimizerRanges::Of(const FlatLayout& layout) {
  OptimizerRanges ranges;
  for (const FlatEntry& entry : layout.entries()) {
    if (entry.frozen) continue;
    const std::int64_t elements = entry.padded_elements();
    OptimizerRange* last = ranges.ranges_.empty() ? nullptr : &ranges.ranges_.back();
    if (last != nullptr && last->group == entry.group &&
        last->first + last->elements == entry.offset) {
      last->elements += elements;
    } else {
      ranges.ranges_.push_back({entry.offset, elements, ranges.elements_, entry.group});
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
