#include "daemon/engine/shard_traffic.h"

#include <algorithm>
#include <numeric>

#include "daemon/tensor/shard_grid.h"
#include "daemon/tensor/shard_layout.h"

namespace gaccd {
namespace {

constexpr std::int64_t kWord = sizeof(float);

struct Sizes {
  std::int64_t parameters = 0;
  std::int64_t squares = 0;
};

Sizes ComputeSizes(const FlatLayout& layout) {
  const std::int64_t blocks = (layout.size() + FlatLayout::kBlock - 1) / FlatLayout::kBlock;
  return {.parameters = layout.size() * kWord, .squares = blocks * std::int64_t{sizeof(double)}};
}

// Unsharded, the message ends with the last parameter, without its padding.
std::int64_t UnpaddedBytes(const FlatLayout& layout) {
  if (layout.entries().empty()) return 0;
  const FlatEntry& last = layout.entries().back();
  return (last.offset + last.elements) * kWord;
}

// Every part and its sums are sent to, or received from, every rank that is not on its owner's
// node.
std::int64_t PartTrafficBetweenNodes(const FlatLayout& layout, std::span<const int> ranks_of_nodes,
                                     std::int64_t world) {
  const ShardLayout shards = ShardLayout::Make(layout, static_cast<int>(world));
  std::int64_t bytes = 0;
  std::size_t rank = 0;
  for (const int ranks : ranks_of_nodes) {
    for (int i = 0; i < ranks; ++i, ++rank) {
      const std::int64_t part = 2 * shards.elements()[rank] * kWord +
                                shards.blocks()[rank] * std::int64_t{sizeof(double)};
      bytes += part * (world - ranks);
    }
  }
  return bytes;
}

}  // namespace

CommTraffic SumTraffic(std::int64_t bytes, std::span<const int> ranks_of_nodes) {
  const std::int64_t world = std::reduce(ranks_of_nodes.begin(), ranks_of_nodes.end());
  return {.sent = 2 * (world - 1) * bytes,
          .between_nodes = 2 * (std::ssize(ranks_of_nodes) - 1) * bytes};
}

CommTraffic UpdateTraffic(Sharding mode, const FlatLayout& layout,
                          std::span<const int> ranks_of_nodes) {
  if (ShardGrid::Make(mode, ranks_of_nodes).parts() == 1) {
    return SumTraffic(UnpaddedBytes(layout), ranks_of_nodes);
  }
  const auto [parameters, squares] = ComputeSizes(layout);
  const CommTraffic sum = SumTraffic(parameters, ranks_of_nodes);
  const std::int64_t world = std::reduce(ranks_of_nodes.begin(), ranks_of_nodes.end());
  const std::int64_t nodes = std::ssize(ranks_of_nodes);
  const std::int64_t both = 2 * parameters + squares;
  switch (mode) {
    case Sharding::kNone:
      return sum;
    case Sharding::kOptimizer:
      return {.sent = (world - 1) * both,
              .between_nodes = PartTrafficBetweenNodes(layout, ranks_of_nodes, world)};
    case Sharding::kNode:
      return {.sent = (world - nodes) * both + sum.between_nodes,
              .between_nodes = sum.between_nodes};
    case Sharding::kNodeOptimizer:
      return {.sent = (world - 1) * both, .between_nodes = (nodes - 1) * both};
  }
  return sum;
}

Result<CommTraffic> StageTraffic(Sharding mode, const FlatLayout& layout,
                                 const PipelineStage& stage, std::span<const int> ranks_of_nodes) {
  GACCD_ASSIGN_OR_RETURN(const FlatLayout own, PartLayout(layout, stage.own()));
  const bool sharded = ShardGrid::Make(mode, ranks_of_nodes).parts() > 1;
  CommTraffic traffic = sharded ? UpdateTraffic(mode, own, ranks_of_nodes)
                                : SumTraffic(own.size() * kWord, ranks_of_nodes);
  const std::int64_t pipelines = std::reduce(ranks_of_nodes.begin(), ranks_of_nodes.end());
  traffic.sent += pipelines * (std::ssize(stage.blocks) - 1) * std::int64_t{sizeof(double)};
  for (const SharedParameter& shared : stage.shared) {
    if (std::ranges::count(shared.stages, stage.stage) == 0) continue;
    const std::int64_t bytes = layout.entries()[shared.parameter].elements * kWord;
    const std::int64_t users = std::ssize(shared.stages);
    traffic.sent += pipelines * 3 * (users - 1) * bytes / users;
  }
  return traffic;
}

}  // namespace gaccd
