#include "collectives/bucket/bucket_plan.h"

#include <algorithm>
#include <numeric>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// A contiguous range. `first` and `last` are positions in the order of offsets.
struct Piece {
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  int ready = 0;

  [[nodiscard]] bool Touches(const Piece& other) const {
    return last + 1 == other.first || other.last + 1 == first;
  }
  [[nodiscard]] std::size_t SizeWith(const Piece& other) const {
    return std::max(end, other.end) - std::min(begin, other.begin);
  }
  void Join(const Piece& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
    begin = std::min(begin, other.begin);
    end = std::max(end, other.end);
    ready = std::max(ready, other.ready);
  }
};

Status Wrong(const std::string& what) {
  return {ErrorKind::kInternal, StrCat("bucket plan: ", what)};
}

// Indices of the gradients ordered by `key`.
template <typename Key>
std::vector<std::size_t> OrderBy(std::size_t count, Key key) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, key);
  return order;
}

Status Check(std::span<const GradientSlot> gradients, std::span<const std::size_t> by_offset,
             std::size_t buffer_elements) {
  std::size_t end = 0;
  for (const std::size_t g : by_offset) {
    const GradientSlot& slot = gradients[g];
    if (slot.elements == 0) return Wrong(StrCat("gradient ", g, " has no elements"));
    if (slot.offset < end) {
      return Wrong(StrCat("gradient ", g, " at ", slot.offset, " overlaps one that ends at ", end));
    }
    if (slot.offset > buffer_elements || slot.elements > buffer_elements - slot.offset) {
      return Wrong(StrCat("gradient ", g, " of ", slot.elements, " elements at ", slot.offset,
                          " is outside of the buffer of ", buffer_elements));
    }
    end = slot.offset + slot.elements;
  }
  return Status::Ok();
}

// Joins gradients that become ready in sequence and are adjacent, up to `limit` elements.
std::vector<Piece> JoinInReadyOrder(std::vector<Piece> singles, std::size_t limit) {
  std::ranges::stable_sort(singles, {}, &Piece::ready);
  std::vector<Piece> pieces;
  for (const Piece& single : singles) {
    if (!pieces.empty() && pieces.back().Touches(single) &&
        pieces.back().SizeWith(single) <= limit) {
      pieces.back().Join(single);
    } else {
      pieces.push_back(single);
    }
  }
  return pieces;
}

// Joins remaining small pieces with adjacent ones, whatever their order of completion.
std::vector<Piece> JoinNeighbours(std::vector<Piece> pieces, std::size_t limit) {
  std::ranges::sort(pieces, {}, &Piece::begin);
  std::vector<Piece> joined;
  for (const Piece& piece : pieces) {
    if (!joined.empty() && joined.back().SizeWith(piece) <= limit) {
      joined.back().Join(piece);
    } else {
      joined.push_back(piece);
    }
  }
  return joined;
}

}  // namespace

Result<BucketPlan> BucketPlan::Make(std::span<const GradientSlot> gradients,
                                    std::size_t buffer_elements, std::size_t bucket_elements) {
  if (gradients.empty()) return Wrong("expected at least one gradient, found none");
  if (bucket_elements == 0) return Wrong("expected buckets of at least 1 element, found 0");
  const auto by_offset =
      OrderBy(gradients.size(), [&](std::size_t g) { return gradients[g].offset; });
  GACCD_RETURN_IF_ERROR(Check(gradients, by_offset, buffer_elements));

  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < by_offset.size(); ++i) {
    const GradientSlot& slot = gradients[by_offset[i]];
    pieces.push_back({i, i, slot.offset, slot.offset + slot.elements, slot.ready});
  }
  pieces = JoinInReadyOrder(std::move(pieces), bucket_elements);
  pieces = JoinNeighbours(std::move(pieces), bucket_elements);
  std::ranges::stable_sort(pieces, {}, &Piece::ready);  // stable: equal ones stay ordered by offset

  BucketPlan plan;
  plan.buffer_elements_ = buffer_elements;
  plan.bucket_of_.resize(gradients.size());
  for (const Piece& piece : pieces) {
    for (std::size_t i = piece.first; i <= piece.last; ++i) {
      plan.bucket_of_[by_offset[i]] = plan.buckets_.size();
    }
    plan.buckets_.push_back(
        {piece.begin, piece.end - piece.begin, static_cast<int>(piece.last - piece.first + 1)});
  }
  return plan;
}

}  // namespace gaccd
