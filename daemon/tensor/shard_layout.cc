#include "daemon/tensor/shard_layout.h"

#include <algorithm>
#include <numeric>

namespace gaccd {
namespace {

std::int64_t BlockCount(std::int64_t elements) {
  return (elements + FlatLayout::kBlock - 1) / FlatLayout::kBlock;
}

// Number of trainable elements before `element`.
std::int64_t TrainableBefore(const FlatLayout& layout, std::int64_t element) {
  std::int64_t sum = 0;
  for (const FlatEntry& entry : layout.entries()) {
    if (entry.offset >= element) break;
    if (!entry.frozen) sum += std::min(entry.padded_elements(), element - entry.offset);
  }
  return sum;
}

// The first block with at least `trainable` trainable elements before it, or the end of the buffer.
std::int64_t BlockAfter(const FlatLayout& layout, std::int64_t trainable) {
  std::int64_t before = 0;
  for (const FlatEntry& entry : layout.entries()) {
    if (before >= trainable) break;
    if (entry.frozen) continue;
    if (before + entry.padded_elements() >= trainable) {
      const std::int64_t end = entry.offset + trainable - before;
      return std::min(layout.size(), BlockCount(end) * FlatLayout::kBlock);
    }
    before += entry.padded_elements();
  }
  return 0;
}

// ceil(trainable part / parts), without overflow.
std::int64_t ShareBefore(std::int64_t trainable, std::int64_t part, std::int64_t parts) {
  return trainable / parts * part + (trainable % parts * part + parts - 1) / parts;
}

}  // namespace

Result<FlatLayout> PartLayout(const FlatLayout& layout, const ShardPart& part) {
  FlatLayout made;
  for (const FlatEntry& entry : layout.entries()) {
    if (entry.offset < part.first || entry.offset >= part.first + part.elements) continue;
    GACCD_ASSIGN_OR_RETURN(const std::size_t index,
                           made.Add(entry.name, entry.shape, entry.group, entry.frozen));
    if (entry.buffer) made.SetBuffer(index);
  }
  return made;
}

ShardLayout ShardLayout::Make(const FlatLayout& layout, int parts) {
  ShardLayout made;
  const std::int64_t trainable = layout.trainable_size();
  ShardPart part;
  for (int i = 0; i < parts; ++i) {
    const std::int64_t end =
        i + 1 == parts ? layout.size() : BlockAfter(layout, ShareBefore(trainable, i + 1, parts));
    part.elements = end - part.first;
    part.state_elements = TrainableBefore(layout, end) - part.state_first;
    made.parts_.push_back(part);
    made.elements_.push_back(part.elements);
    made.blocks_.push_back(BlockCount(part.elements));
    part.first = end;
    part.state_first += part.state_elements;
  }
  return made;
}

std::int64_t ShardLayout::max_state_elements() const {
  return std::ranges::max(parts_, {}, &ShardPart::state_elements).state_elements;
}

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
