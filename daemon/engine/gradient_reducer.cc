#include "daemon/engine/gradient_reducer.h"

#include <utility>
#include <vector>

namespace gaccd {

Result<BucketReducer> MakeGradientReducer(Communicator& comm, const FlatLayout& layout,
                                          MutableBuffer gradients, std::size_t bucket_elements) {
  const std::span<const FlatEntry> entries = layout.entries();
  std::vector<GradientSlot> slots;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Backward starts at the end of the model: the last parameter's gradient is ready first.
    slots.push_back({.offset = static_cast<std::size_t>(entries[i].offset),
                     .elements = static_cast<std::size_t>(entries[i].elements),
                     .ready = static_cast<int>(entries.size() - i)});
  }
  GACCD_ASSIGN_OR_RETURN(BucketPlan plan,
                         BucketPlan::Make(slots, gradients.count, bucket_elements));
  return BucketReducer::Make(comm, std::move(plan), gradients);
}

}  // namespace gaccd
