#include "daemon/models/graph_value.h"

#include <algorithm>
#include <numeric>

namespace gaccd {
namespace {

std::int64_t Times(std::int64_t a, std::int64_t b) {
  return a < 0 && b < 0 ? 0 : a * b;  // 0: invalid
}

std::int64_t Product(const Shape& sizes, std::size_t first, std::size_t last) {
  std::int64_t product = 1;
  for (std::size_t i = first; i < last; ++i) product = Times(product, sizes[i]);
  return product;
}

// a / b; nullopt if it is not an integer.
std::optional<std::int64_t> Divided(std::int64_t a, std::int64_t b) {
  if ((b < 0 && a > 0) || b == 0 || a % b != 0) return std::nullopt;
  return a / b;
}

// Splits piece `at` of the memory into two of these sizes.
void CutPiece(GraphValue* value, std::size_t at, std::int64_t outer, std::int64_t inner) {
  const auto place = value->memory.begin() + static_cast<std::ptrdiff_t>(at);
  *place = outer;
  value->memory.insert(place + 1, inner);
  for (DimensionOrder& pieces : value->pieces) {
    for (std::size_t& piece : pieces) piece += piece > at ? 1 : 0;
    const auto found = std::ranges::find(pieces, at);
    if (found != pieces.end()) pieces.insert(found + 1, at + 1);
  }
}

// `value` as one dimension with the fewest pieces: pieces that are adjacent in PyTorch's order and
// in memory are merged.
GraphValue Flattened(const GraphValue& value) {
  const DimensionOrder old = CollectPieces(value, RowMajor(value.rank()));
  DimensionOrder by_place = RowMajor(old.size());
  std::ranges::sort(by_place, {}, [&](std::size_t i) { return old[i]; });
  GraphValue flat{.id = value.id, .sizes = {}, .part = value.part};
  flat.pieces.resize(1);
  DimensionOrder place(old.size());
  for (std::size_t k = 0; k < by_place.size(); ++k) {
    const std::size_t i = by_place[k];
    if (k > 0 && i == by_place[k - 1] + 1) {
      flat.memory.back() = Times(flat.memory.back(), value.memory[old[i]]);
    } else {
      flat.memory.push_back(value.memory[old[i]]);
    }
    place[i] = flat.memory.size() - 1;
  }
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (i == 0 || place[i] != place[i - 1]) flat.pieces[0].push_back(place[i]);
  }
  return flat;
}

}  // namespace

DimensionOrder CollectPieces(const GraphValue& value, const DimensionOrder& order) {
  DimensionOrder pieces;
  for (const std::size_t dimension : order) {
    for (const std::size_t piece : value.pieces[dimension]) {
      if (value.memory[piece] != 1) pieces.push_back(piece);
    }
  }
  return pieces;
}

DimensionOrder RowMajor(std::size_t rank) {
  DimensionOrder order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

GraphValue InMemoryOrder(ValueId id, const Shape& sizes, const DimensionOrder& order) {
  GraphValue value{.id = id, .sizes = sizes};
  value.pieces.resize(order.size());
  for (std::size_t place = 0; place < order.size(); ++place) {
    value.memory.push_back(sizes[order[place]]);
    value.pieces[order[place]] = {place};
  }
  return value;
}

GraphValue WithRank(const GraphValue& value, std::size_t rank) {
  GraphValue wider = value;
  const std::size_t added = rank - value.rank();
  wider.sizes.insert(wider.sizes.begin(), added, 1);
  wider.pieces.insert(wider.pieces.begin(), added, DimensionOrder{});
  return wider;
}

bool HasMemoryOrder(const GraphValue& value, const DimensionOrder& order) {
  return std::ranges::is_sorted(CollectPieces(value, order));
}

std::optional<DimensionOrder> MemoryOrder(const GraphValue& value) {
  DimensionOrder order = RowMajor(value.rank());
  std::ranges::stable_sort(order, {}, [&](std::size_t dimension) {
    const DimensionOrder pieces = CollectPieces(value, {dimension});
    return pieces.empty() ? value.memory.size() : pieces[0];
  });
  return HasMemoryOrder(value, order) ? std::optional(order) : std::nullopt;
}

std::optional<GraphValue> WithLast(const GraphValue& value, std::int64_t size) {
  DimensionOrder all = CollectPieces(value, RowMajor(value.rank()));
  const DimensionOrder last = CollectPieces(value, {value.rank() - 1});
  std::ranges::sort(all);
  if (!std::ranges::equal(last, std::span(all).last(last.size()))) return std::nullopt;
  GraphValue with{.id = value.id, .sizes = value.sizes};
  with.sizes.back() = size;
  const std::size_t first = last.empty() ? value.memory.size() : last[0];
  with.memory.assign(value.memory.begin(),
                     value.memory.begin() + static_cast<std::ptrdiff_t>(first));
  with.memory.push_back(size);
  for (std::size_t i = 0; i + 1 < value.rank(); ++i)
    with.pieces.push_back(CollectPieces(value, {i}));
  with.pieces.push_back({first});
  return with;
}

std::optional<std::int64_t> MultiplySizes(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product = Times(product, size);
  return product == 0 ? std::nullopt : std::optional(product);
}

// Distributes all pieces in PyTorch's order over the new dimensions; splits a piece that is larger
// than the rest of a dimension.
std::optional<GraphValue> MakeView(const GraphValue& value, const Shape& sizes) {
  GraphValue view = Flattened(value);
  view.sizes = sizes;
  std::size_t next = 0;
  std::vector<std::size_t> ends;  // in the list of all pieces
  for (const std::int64_t size : sizes) {
    std::int64_t left = size;
    while (left != 1) {
      if (next == view.pieces[0].size()) return std::nullopt;
      const std::size_t piece = view.pieces[0][next];
      const std::int64_t has = view.memory[piece];
      if (const auto rest = Divided(left, has)) {
        left = *rest;
      } else if (const auto inner = Divided(has, left)) {
        CutPiece(&view, piece, left, *inner);
        left = 1;
      } else {
        return std::nullopt;
      }
      ++next;
    }
    ends.push_back(next);
  }
  if (next != view.pieces[0].size()) return std::nullopt;
  const DimensionOrder all = std::move(view.pieces[0]);
  view.pieces.clear();
  for (std::size_t i = 0, first = 0; i < ends.size(); first = ends[i++]) {
    view.pieces.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(first),
                             all.begin() + static_cast<std::ptrdiff_t>(ends[i]));
  }
  return view;
}

GraphValue PermuteDimensions(const GraphValue& value, const DimensionOrder& dims) {
  GraphValue permuted = value;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    permuted.sizes[i] = value.sizes[dims[i]];
    permuted.pieces[i] = value.pieces[dims[i]];
  }
  return permuted;
}

std::optional<GraphValue> MakePart(const GraphValue& value, std::size_t dimension,
                                   std::int64_t first, std::int64_t last) {
  const DimensionOrder pieces = CollectPieces(value, {dimension});
  const std::int64_t size = value.sizes[dimension];
  if (pieces.size() != 1 || size < 0 || value.part) return std::nullopt;
  const std::int64_t inner = Product(value.memory, pieces[0] + 1, value.memory.size());
  if (inner <= 0) return std::nullopt;  // samples are inside
  GraphValue part = value;
  part.part = {.matrix = value.id,
               .columns = size * inner,
               .first = first * inner,
               .width = (last - first) * inner};
  part.id = nn::kNoValue;
  part.sizes[dimension] = last - first;
  part.memory[pieces[0]] = last - first;
  return part;
}

std::optional<PieceExchange> ExchangeTo(const GraphValue& value, const DimensionOrder& order) {
  const DimensionOrder to = CollectPieces(value, order);
  DimensionOrder from = to;
  std::ranges::sort(from);
  const auto same = std::ranges::mismatch(from, to).in1;
  if (same == from.end()) return std::nullopt;
  const auto second = std::ranges::find(from, to[static_cast<std::size_t>(same - from.begin())]);
  DimensionOrder exchanged = from;
  std::rotate(exchanged.begin() + (same - from.begin()),
              exchanged.begin() + (second - from.begin()), exchanged.end());
  if (exchanged != to) return std::nullopt;
  return PieceExchange{.outer = Product(value.memory, 0, *same),
                       .first = Product(value.memory, *same, *second),
                       .second = Product(value.memory, *second, value.memory.size())};
}

}  // namespace gaccd
