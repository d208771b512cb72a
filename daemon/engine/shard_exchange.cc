#include "daemon/engine/shard_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gaccd {

namespace {

// Elements of state gathered at once: 1 MiB.
constexpr std::int64_t kPiece = std::int64_t{1} << 18;

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

// count() == 0 if they do not overlap.
Range Intersect(Range a, Range b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

Range ElementRange(const ShardPart& part) { return {part.first, part.first + part.elements}; }

Range StateRange(const ShardPart& part) {
  return {part.state_first, part.state_first + part.state_elements};
}

std::int64_t Sum(std::span<const std::int64_t> counts) {
  return std::reduce(counts.begin(), counts.end());
}

template <typename T>
std::span<T> Part(std::span<T> values, std::int64_t first, std::int64_t count) {
  return values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

std::vector<int> CountRanksByNode(const Topology& topology) {
  std::vector<int> ranks(static_cast<std::size_t>(topology.nodes));
  for (const int node : topology.node_of) ++ranks[static_cast<std::size_t>(node)];
  return ranks;
}

Result<std::unique_ptr<ShardExchange>> ShardExchange::Make(Communicator& comm, Sharding mode,
                                                           const FlatLayout& layout,
                                                           std::int64_t state_buffers,
                                                           MemoryKind memory) {
  const ShardGrid grid = ShardGrid::Make(mode, CountRanksByNode(comm.topology()));
  std::unique_ptr<ShardExchange> made(new ShardExchange(grid, layout, state_buffers, memory));
  GACCD_RETURN_IF_ERROR(made->Connect(comm, mode));
  return made;
}

ShardExchange::ShardExchange(const ShardGrid& grid, const FlatLayout& layout,
                             std::int64_t state_buffers, MemoryKind memory)
    : grid_(grid),
      shards_(ShardLayout::Make(layout, grid.parts())),
      trainable_(layout.trainable_size()),
      state_buffers_(state_buffers),
      memory_(memory) {}

Status ShardExchange::Connect(Communicator& comm, Sharding mode) {
  const Topology& topology = comm.topology();
  const int node = topology.node_of[static_cast<std::size_t>(comm.rank())];
  lanes_ = &comm;
  if (mode != Sharding::kOptimizer && topology.nodes > 1) {
    const bool has_lane = topology.local_rank < grid_.lanes;
    // The second split is collective over all ranks, also if the first one failed on a node.
    auto within = comm.Split(node, topology.local_rank);
    auto between = comm.Split(has_lane ? topology.local_rank : -1, node);
    GACCD_ASSIGN_OR_RETURN(within_, std::move(within));
    GACCD_ASSIGN_OR_RETURN(between_, std::move(between));
    lanes_ = within_.get();
  }
  lane_ = lanes_->rank();
  own_ = {.first = Sum(shards_.elements()), .state_first = trainable_};
  if (owns_lane()) {
    part_ = static_cast<std::size_t>(lane_ * grid_.nodes + (grid_.nodes > 1 ? node : 0));
    own_ = shards_.parts()[part_];
  }
  blocks_ = Sum(shards_.blocks());
  return Status::Ok();
}

std::span<const std::int64_t> ShardExchange::OwnLaneCounts(
    std::span<const std::int64_t> by_part) const {
  return Part(by_part, std::int64_t{lane_} * grid_.nodes, grid_.nodes);
}

std::vector<std::int64_t> ShardExchange::LaneCounts(std::span<const std::int64_t> by_part) const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(lanes_->size()));
  for (int lane = 0; lane < grid_.lanes; ++lane) {
    counts[static_cast<std::size_t>(lane)] =
        Sum(Part(by_part, std::int64_t{lane} * grid_.nodes, grid_.nodes));
  }
  return counts;
}

template <typename T>
std::span<T> ShardExchange::OwnLane(std::span<T> whole,
                                    std::span<const std::int64_t> counts) const {
  if (!owns_lane()) return whole.last(0);
  const std::int64_t first = Sum(Part(counts, 0, std::int64_t{lane_} * grid_.nodes));
  return Part(whole, first, Sum(OwnLaneCounts(counts)));
}

template <typename T>
std::span<T> ShardExchange::OwnPart(std::span<T> whole,
                                    std::span<const std::int64_t> counts) const {
  if (!owns_lane()) return whole.last(0);
  return Part(whole, Sum(counts.first(part_)), counts[part_]);
}

Status ShardExchange::RecordReduce(UpdateGraph& graph, std::span<float> whole,
                                   StreamHandle stream) const {
  return RecordReduce(graph, whole, 0, std::ssize(whole), stream);
}

Status ShardExchange::RecordReduce(UpdateGraph& graph, std::span<float> whole, std::int64_t first,
                                   std::int64_t count, StreamHandle stream) const {
  std::vector<std::int64_t> counts;
  for (const ShardPart& part : shards_.parts()) {
    counts.push_back(Intersect(ElementRange(part), {first, first + count}).count());
  }
  const std::span<float> here = Part(whole, first, count);
  GACCD_RETURN_IF_ERROR(graph.ReduceScatter(*lanes_, AsBuffer(here), LaneCounts(counts), stream));
  if (!between_) return Status::Ok();
  const MutableBuffer lane = AsBuffer(OwnLane(here, std::span<const std::int64_t>(counts)));
  if (grid_.nodes == 1) return graph.AllReduceSum(*between_, {&lane, 1}, stream);
  const auto own_counts = OwnLaneCounts(counts);
  return graph.ReduceScatter(*between_, lane, {own_counts.begin(), own_counts.end()}, stream);
}

template <typename T>
Status ShardExchange::RecordGatherParts(UpdateGraph& graph, std::span<const std::int64_t> counts,
                                        std::span<T> whole, StreamHandle stream) const {
  if (between_ && grid_.nodes > 1) {
    const auto own_counts = OwnLaneCounts(counts);
    GACCD_RETURN_IF_ERROR(graph.AllGather(*between_, AsBuffer(OwnLane(whole, counts)),
                                          {own_counts.begin(), own_counts.end()}, stream));
  }
  return graph.AllGather(*lanes_, AsBuffer(whole), LaneCounts(counts), stream);
}

Status ShardExchange::RecordGather(UpdateGraph& graph, std::span<float> whole,
                                   StreamHandle stream) const {
  return RecordGatherParts(graph, shards_.elements(), whole, stream);
}

std::span<double> ShardExchange::OwnSquares(std::span<double> squares) const {
  return OwnPart(squares, shards_.blocks());
}

Status ShardExchange::RecordGatherSquares(UpdateGraph& graph, std::span<double> squares,
                                          StreamHandle stream) const {
  return RecordGatherParts(graph, shards_.blocks(), squares, stream);
}

Status ShardExchange::GatherParts(std::span<const float> own, std::span<const std::int64_t> counts,
                                  std::span<float> whole, StreamHandle stream) const {
  std::span<const float> lane = own;
  if (between_ && grid_.nodes > 1) {
    const std::span<float> gathered = OwnLane(whole, counts);
    GACCD_RETURN_IF_ERROR(
        between_->AllGather(AsBuffer(own), OwnLaneCounts(counts), AsBuffer(gathered), stream));
    lane = gathered;
  }
  return lanes_->AllGather(AsBuffer(lane), LaneCounts(counts), AsBuffer(whole), stream);
}

std::int64_t ShardExchange::piece_elements() const { return std::min(trainable_, kPiece); }

Status ShardExchange::GatherState(std::span<const float> own_state, std::int64_t first,
                                  std::span<float> out, std::span<float> piece, const CopyOut& copy,
                                  StreamHandle stream) const {
  const Range asked = {first, first + std::ssize(out)};
  std::vector<std::int64_t> counts(shards_.parts().size());
  for (std::int64_t i = 0; i < state_buffers_ * trainable_;) {
    const std::int64_t buffer = i / trainable_;
    const std::int64_t begin = i % trainable_;
    const Range here = {begin, std::min(begin + kPiece, trainable_)};
    std::ranges::transform(shards_.parts(), counts.begin(), [&](const ShardPart& part) {
      return Intersect(StateRange(part), here).count();
    });
    const Range mine = Intersect(StateRange(own_), here);
    const std::int64_t place =
        mine.count() == 0 ? 0 : buffer * own_.state_elements + mine.begin - own_.state_first;
    const auto gathered = Part(piece, 0, here.count());
    GACCD_RETURN_IF_ERROR(
        GatherParts(Part(own_state, place, mine.count()), counts, gathered, stream));
    const Range wanted = Intersect(asked, {i, i + here.count()});
    if (wanted.count() > 0) {
      GACCD_RETURN_IF_ERROR(copy(Part(gathered, wanted.begin - i, wanted.count()),
                                 Part(out, wanted.begin - first, wanted.count())));
    }
    i += here.count();
  }
  return Status::Ok();
}

Status ShardExchange::GatherState(std::span<const float> own_state, std::int64_t first,
                                  std::span<float> out) const {
  std::vector<float> piece(static_cast<std::size_t>(piece_elements()));
  return GatherState(own_state, first, out, piece,
                     [](std::span<const float> from, std::span<float> to) {
                       std::ranges::copy(from, to.begin());
                       return Status::Ok();
                     });
}

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
