#include "daemon/engine/gradient_buckets.h"

#include <vector>

namespace gaccd {

Result<BucketPlan> GradientBuckets(const FlatLayout& layout, std::size_t bucket_elements) {
  const std::span<const FlatEntry> entries = layout.entries();
  std::vector<GradientSlot> slots;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Backward starts at the end of the model: the last parameter's gradient is ready first.
    slots.push_back({.offset = static_cast<std::size_t>(entries[i].offset),
                     .elements = static_cast<std::size_t>(entries[i].elements),
                     .ready = static_cast<int>(entries.size() - i)});
  }
  return BucketPlan::Make(slots, static_cast<std::size_t>(layout.size()), bucket_elements);
}

}  // namespace gaccd
