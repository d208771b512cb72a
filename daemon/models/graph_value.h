// GraphValue: a value of an exported network, with its shape in PyTorch and its layout in memory.
// Views, permutations and slices only change the layout; elements are copied when a function of
// ops/ needs its input in another order.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "daemon/nn/recorder.h"

namespace gaccd {

// Dimensions from the outermost to the innermost in memory.
using DimensionOrder = std::vector<std::size_t>;

// Columns [first, first + width) of a matrix.
struct ColumnRange {
  ValueId matrix = nn::kNoValue;
  std::int64_t columns = 0;  // of `matrix`
  std::int64_t first = 0;
  std::int64_t width = 0;
};

struct GraphValue {
  ValueId id = nn::kNoValue;                // the elements in memory, with any shape
  Shape sizes;                              // in PyTorch; a size -k is k times the samples
  Shape memory = {};                        // sizes of pieces, from the outermost to the innermost
  std::vector<DimensionOrder> pieces = {};  // by dimension: indices in `memory`, outermost first
  std::optional<ColumnRange> part = std::nullopt;  // if set there is no id

  [[nodiscard]] std::size_t rank() const { return sizes.size(); }
};

// 0, 1, 2, ...
[[nodiscard]] DimensionOrder RowMajor(std::size_t rank);

// A value whose dimensions have this order in memory.
[[nodiscard]] GraphValue InMemoryOrder(ValueId id, const Shape& sizes, const DimensionOrder& order);

// The concatenated pieces of these dimensions, without those of size 1.
[[nodiscard]] DimensionOrder CollectPieces(const GraphValue& value, const DimensionOrder& order);

// `value` with leading sizes of 1 added up to `rank`. REQUIRES: value.rank() <= rank.
[[nodiscard]] GraphValue WithRank(const GraphValue& value, std::size_t rank);

// Whether the memory has this order; ignores pieces of size 1.
[[nodiscard]] bool HasMemoryOrder(const GraphValue& value, const DimensionOrder& order);
// The order of dimensions in memory; nullopt if the pieces of a dimension are not adjacent.
[[nodiscard]] std::optional<DimensionOrder> MemoryOrder(const GraphValue& value);

// `value` with another last size, for results computed row by row; the order of rows is unchanged.
// nullopt if the last dimension is not the innermost in memory.
[[nodiscard]] std::optional<GraphValue> WithLast(const GraphValue& value, std::int64_t size);

// The product of sizes; negative means times the samples. nullopt if two sizes count samples.
[[nodiscard]] std::optional<std::int64_t> MultiplySizes(std::span<const std::int64_t> sizes);
// The actual size for a number of samples.
[[nodiscard]] constexpr std::int64_t ActualSize(std::int64_t size, std::int64_t samples) {
  return size < 0 ? -size * samples : size;
}

// view() of PyTorch: the same elements in row-major order of dimensions. nullopt if the number of
// elements differs, or a copy would be needed.
[[nodiscard]] std::optional<GraphValue> MakeView(const GraphValue& value, const Shape& sizes);

// Dimension i of the result is dimension dims[i]. REQUIRES: dims is a permutation.
[[nodiscard]] GraphValue PermuteDimensions(const GraphValue& value, const DimensionOrder& dims);

// Indices [first, last) of a dimension. nullopt if it has several pieces or counts samples, samples
// are inside of it in memory, or `value` is already a part. REQUIRES: 0 <= first < last <= size.
[[nodiscard]] std::optional<GraphValue> MakePart(const GraphValue& value, std::size_t dimension,
                                                 std::int64_t first, std::int64_t last);

// A change of the memory order that exchanges the two innermost groups of adjacent pieces, with
// products of sizes: [outer, first, second] -> [outer, second, first].
struct PieceExchange {
  std::int64_t outer = 1;
  std::int64_t first = 1;
  std::int64_t second = 1;
};
[[nodiscard]] std::optional<PieceExchange> ExchangeTo(const GraphValue& value,
                                                      const DimensionOrder& order);

}  // namespace gaccd
