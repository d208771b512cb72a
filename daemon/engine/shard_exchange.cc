#include "daemon/engine/shard_exchange.h"

#include <algorithm>
#include <numeric>

#include "daemon/optim/norm.h"

namespace gaccd {
namespace {

// Elements of state that are gathered at once: 1 MiB.
constexpr std::int64_t kPiece = std::int64_t{1} << 18;

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

// Empty ones have count() == 0.
Range Intersect(Range a, Range b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

Range StateOf(const ShardPart& part) {
  return {part.state_first, part.state_first + part.state_elements};
}

template <typename T>
std::span<T> Part(std::span<T> values, std::int64_t first, std::int64_t count) {
  return values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace

ShardExchange::ShardExchange(Communicator& comm, const FlatLayout& layout,
                             std::int64_t state_buffers)
    : comm_(&comm), shards_(ShardLayout::Make(layout, comm.size())), state_buffers_(state_buffers) {
  const std::span<const std::int64_t> blocks = shards_.blocks();
  own_squares_.resize(static_cast<std::size_t>(blocks[static_cast<std::size_t>(comm.rank())]));
  squares_.resize(static_cast<std::size_t>(std::reduce(blocks.begin(), blocks.end())));
}

Status ShardExchange::Reduce(std::span<float> whole) {
  return comm_->ReduceScatter(View(whole), shards_.elements(), View(Own(whole)));
}

Status ShardExchange::Gather(std::span<float> whole) {
  return comm_->AllGather(View(Own(whole)), shards_.elements(), View(whole));
}

Result<double> ShardExchange::SumOfSquares(std::span<const float> own_part) {
  SquaresOfBlocks(own_part, own_squares_);
  GACCD_RETURN_IF_ERROR(
      comm_->AllGather(View(std::span(own_squares_)), shards_.blocks(), View(std::span(squares_))));
  return SumInOrder(squares_);
}

void ShardExchange::KeepOwn(std::span<const float> whole_state, std::span<float> own_state) const {
  const std::int64_t trainable = StateOf(shards_.parts().back()).end;
  for (std::int64_t buffer = 0; buffer < state_buffers_; ++buffer) {
    const std::int64_t elements = own().state_elements;
    std::ranges::copy(Part(whole_state, buffer * trainable + own().state_first, elements),
                      Part(own_state, buffer * elements, elements).begin());
  }
}

Status ShardExchange::GatherState(std::span<const float> own_state, std::int64_t first,
                                  std::span<float> out) const {
  const std::int64_t trainable = StateOf(shards_.parts().back()).end;
  const Range asked = {first, first + std::ssize(out)};
  std::vector<float> piece(static_cast<std::size_t>(std::min(trainable, kPiece)));
  std::vector<std::int64_t> counts(shards_.parts().size());
  for (std::int64_t i = 0; i < state_buffers_ * trainable;) {
    const std::int64_t buffer = i / trainable;
    const std::int64_t begin = i % trainable;
    const Range here = {begin, std::min(begin + kPiece, trainable)};
    std::ranges::transform(shards_.parts(), counts.begin(), [&](const ShardPart& part) {
      return Intersect(StateOf(part), here).count();
    });
    const Range mine = Intersect(StateOf(own()), here);
    const std::int64_t place =
        mine.count() == 0 ? 0 : buffer * own().state_elements + mine.begin - own().state_first;
    const auto gathered = Part(std::span(piece), 0, here.count());
    GACCD_RETURN_IF_ERROR(
        comm_->AllGather(View(Part(own_state, place, mine.count())), counts, View(gathered)));
    const Range wanted = Intersect(asked, {i, i + here.count()});
    if (wanted.count() > 0) {
      std::ranges::copy(Part(gathered, wanted.begin - i, wanted.count()),
                        Part(out, wanted.begin - first, wanted.count()).begin());
    }
    i += here.count();
  }
  return Status::Ok();
}

}  // namespace gaccd
