// GraphValue: a value of an exported network: its shape in PyTorch, and how it lies in memory. All
// that is about layout is here: a view, an exchange of dimensions and a part of a value cost
// nothing, until a function of ops/ wants its input in an order of its own.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "daemon/nn/recorder.h"

namespace gaccd {

// Dimensions from the outermost in memory to the innermost.
using DimensionOrder = std::vector<std::size_t>;

// Columns [first, first + width) of a matrix.
struct ColumnsOf {
  ValueId matrix = nn::kNoValue;
  std::int64_t columns = 0;  // of the matrix
  std::int64_t first = 0;
  std::int64_t width = 0;
};

struct GraphValue {
  ValueId id = nn::kNoValue;  // the elements in memory, under any shape of as many
  Shape sizes;                // in PyTorch; a size -k is k times the samples
  Shape memory = {};          // pieces of these sizes, from the outermost to the innermost
  std::vector<DimensionOrder> pieces = {};  // of each dimension, the outermost first: of `memory`
  std::optional<ColumnsOf> part = std::nullopt;  // then there is no id

  [[nodiscard]] std::size_t rank() const { return sizes.size(); }
};

// 0, 1, 2, ...
[[nodiscard]] DimensionOrder RowMajor(std::size_t rank);

// A value whose dimensions lie in this order.
[[nodiscard]] GraphValue LyingAs(ValueId id, const Shape& sizes, const DimensionOrder& order);

// The pieces of these dimensions, one after the other, without those of size 1.
[[nodiscard]] DimensionOrder PiecesOf(const GraphValue& value, const DimensionOrder& order);

// `value` with sizes of 1 before the others, `rank` in all. REQUIRES: it has no more.
[[nodiscard]] GraphValue WithRank(const GraphValue& value, std::size_t rank);

// Whether it lies in this order; pieces of size 1 are anywhere.
[[nodiscard]] bool LiesAs(const GraphValue& value, const DimensionOrder& order);
// The order in which it lies; nothing where a dimension is in pieces.
[[nodiscard]] std::optional<DimensionOrder> OrderOf(const GraphValue& value);

// `value` with another last dimension, for what is computed row by row; the rows stay where they
// are. Nothing where the last dimension is not the innermost in memory.
[[nodiscard]] std::optional<GraphValue> WithLast(const GraphValue& value, std::int64_t size);

// The product of sizes; -k stays k times the samples. Nothing where two count the samples.
[[nodiscard]] std::optional<std::int64_t> ProductOfSizes(std::span<const std::int64_t> sizes);
// How many a size is, for a number of samples.
[[nodiscard]] constexpr std::int64_t CountOf(std::int64_t size, std::int64_t samples) {
  return size < 0 ? -size * samples : size;
}

// `value` with other sizes, in PyTorch's sense: the same elements in row-major order of its
// dimensions. Nothing where they are not as many, or a dimension would have to be copied.
[[nodiscard]] std::optional<GraphValue> ViewOf(const GraphValue& value, const Shape& sizes);

// Dimension i of the result is dimension dims[i]. REQUIRES: dims is a permutation.
[[nodiscard]] GraphValue PermuteDimensions(const GraphValue& value, const DimensionOrder& dims);

// Indices [first, last) of a dimension. Nothing where the dimension is in pieces or counts
// the samples, or `value` is a part already. REQUIRES: 0 <= first < last <= the size.
[[nodiscard]] std::optional<GraphValue> PartOf(const GraphValue& value, std::size_t dimension,
                                               std::int64_t first, std::int64_t last);

// Memory becomes that of another order by exchanging two groups of neighbouring pieces, the inner
// ones: [outer, first, second] -> [outer, second, first]. Products of sizes.
struct PieceExchange {
  std::int64_t outer = 1;
  std::int64_t first = 1;
  std::int64_t second = 1;
};
[[nodiscard]] std::optional<PieceExchange> ExchangeTo(const GraphValue& value,
                                                      const DimensionOrder& order);

}  // namespace gaccd
