#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/models/graph_ops.h"
#include "daemon/ops/attention/attention.h"
#include "daemon/ops/attention/rotary.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/number_functions.h"

namespace gaccd {
namespace {

const DimensionOrder kHeads = {0, 2, 1, 3};  // [B, H, T, D] is stored as [B, T, H, D]

// Row numbers of `table`: ids of the data, or computed from it and rounded to activations.
ValueId AsIds(GraphRecorder& r, ValueId numbers, const GraphValue& table) {
  if (!r.ok()) return nn::kNoValue;
  const DType dtype = r.recorder().dtype(numbers);
  if (dtype == DType::kI32) return numbers;
  if (dtype != DType::kF32) {
    const std::int64_t exact = dtype == DType::kBF16 ? 256 : 2048;  // 8 and 11 binary digits
    if (!r.Expect(table.sizes[0] <= exact,
                  StrCat("expected a table of at most ", exact, " rows, whose numbers ",
                         Name(dtype), " holds (precision: F32 takes any)"),
                  table)) {
      return nn::kNoValue;
    }
    numbers = r.Apply(std::make_shared<Cast>(DType::kF32), {numbers});
  }
  return r.Apply(std::make_shared<IdFunction>(IdFunctionKind::kNumbersToIds), {numbers});
}

GraphValue ApplyEmbedding(GraphRecorder& r, std::int32_t padding) {
  const GraphValue ids = r.In(0);
  const GraphValue table = r.In(1);
  if (!r.Expect(table.rank() == 2 && table.sizes[0] > 0, "expected a table [rows, width]", table)) {
    return {};
  }
  const DimensionOrder order = RowMajor(ids.rank());
  ValueId id = AsIds(r, r.InOrder(ids, order), table);
  if (!r.ok()) return {};
  if (r.recorder().shape(id).size() != 2) {
    id = r.As(id, {Elements(r.ActualSizes(ids.sizes, order))});
  }
  ValueId rows = r.Shaped(table, RowMajor(2));
  if (!r.ok()) return {};
  if (r.recorder().dtype(rows) != DType::kF32) {  // computed
    rows = r.Apply(std::make_shared<Cast>(DType::kF32), {rows});
  }
  const ValueId y =
      r.Apply(std::make_shared<Embedding>(r.recorder().activations(), padding), {id, rows});
  Shape sizes = ids.sizes;
  sizes.push_back(table.sizes[1]);
  return InMemoryOrder(y, sizes, RowMajor(sizes.size()));
}

GraphValue RecordEmbedding(GraphRecorder& r) { return ApplyEmbedding(r, -1); }

GraphValue RecordPaddedEmbedding(GraphRecorder& r) {
  return ApplyEmbedding(r, static_cast<std::int32_t>(r.Integer("padding_idx")));
}

GraphValue RecordPositions(GraphRecorder& r) {
  const GraphValue table = r.In(0);
  const Shape& size = r.Integers("size");
  const bool fits = table.rank() == 2 && size.size() >= 2 && MultiplySizes(size) > 0 &&
                    size.back() == table.sizes[1] &&
                    *MultiplySizes(size) == size[size.size() - 2] * size.back() &&
                    size[size.size() - 2] <= table.sizes[0];
  if (!r.Expect(fits, StrCat("expected a table of at least ", ToString(size)), table)) return {};
  return InMemoryOrder(table.id, size, RowMajor(size.size()));
}

// x [.., T, D]; keeps the order of its rows in memory.
GraphValue RecordRotary(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  if (!r.Expect(x.rank() >= 2 && x.sizes.back() > 0 && x.sizes[x.rank() - 2] > 0,
                "expected [.., length, width]", x)) {
    return {};
  }
  const std::size_t last = x.rank() - 1;
  DimensionOrder order = MemoryOrder(x).value_or(RowMajor(x.rank()));
  if (order.back() != last) order = RowMajor(x.rank());
  RotaryOptions options{.length = x.sizes[last - 1]};
  for (std::size_t i = last; order[i - 1] != last - 1; --i) {
    options.group *= ActualSize(x.sizes[order[i - 1]], r.recorder().samples());
  }
  std::vector<ValueId> inputs = {r.Rows(x, order, 1)};
  for (const std::size_t i : {1, 2}) {
    const GraphValue angles = r.In(i);
    if (!r.Expect(MultiplySizes(angles.sizes) == options.length * x.sizes[last],
                  StrCat("expected angles of ", options.length, " x ", x.sizes[last]), angles)) {
      return {};
    }
    inputs.push_back(r.As(angles.id, {options.length, x.sizes[last]}));
  }
  if (!r.ok()) return {};
  return InMemoryOrder(r.Apply(std::make_shared<Rotary>(options), std::move(inputs)), x.sizes,
                       order);
}

// The matrix [rows, 3 H D] whose rows are [q | k | v]; nullopt if q, k and v are not its columns.
std::optional<ValueId> PackedRows(GraphRecorder& r, const Shape& sizes) {
  const std::int64_t width = sizes[1] * sizes[3];
  std::optional<ValueId> matrix;
  for (std::size_t i = 0; i < 3; ++i) {
    const GraphValue one = r.InOrPart(i);
    if (!one.part || one.sizes != sizes || !HasMemoryOrder(one, kHeads)) return std::nullopt;
    const bool fits = one.part->columns == 3 * width && one.part->width == width &&
                      one.part->first == static_cast<std::int64_t>(i) * width;
    if (!fits || (matrix && *matrix != one.part->matrix)) return std::nullopt;
    matrix = one.part->matrix;
  }
  const std::int64_t rows = ActualSize(sizes[0], r.recorder().samples()) * sizes[2];
  return r.As(*matrix, {rows, 3 * width});
}

// lengths: each row attends to the keys before the length of its text.
GraphValue ApplyAttention(GraphRecorder& r, std::optional<ValueId> lengths) {
  const GraphValue q = r.InOrPart(0);
  const bool fits = q.rank() == 4 && q.sizes[0] < 0 && MultiplySizes(q.sizes).value_or(0) < 0;
  if (!r.Expect(fits, "expected [samples, heads, length, width]", q)) return {};
  std::vector<ValueId> rows;
  if (const auto packed = PackedRows(r, q.sizes)) {
    rows = {*packed};
  } else {
    for (const std::size_t i : {0, 1, 2}) {
      const GraphValue one = r.In(i);
      const std::string expected = StrCat("expected the shape of q, ", ToString(q.sizes));
      if (!r.Expect(one.sizes == q.sizes, expected, one)) return {};
      rows.push_back(r.AsActivation(r.Rows(one, kHeads, 2)));
    }
  }
  if (lengths) rows.push_back(*lengths);
  const AttentionOptions options{.heads = q.sizes[1],
                                 .length = q.sizes[2],
                                 .causal = r.Integer("causal") != 0,
                                 .all_rows = lengths.has_value()};
  return InMemoryOrder(r.Apply(std::make_shared<Attention>(options), std::move(rows)), q.sizes,
                       kHeads);
}

GraphValue RecordAttention(GraphRecorder& r) { return ApplyAttention(r, std::nullopt); }

// Added to scores of hidden keys: far below any score, and representable in fp16.
constexpr double kHiddenScore = -60000;

// As attention with one more element per head, which is 1 in queries and kHiddenScore in hidden
// keys:
//   q' = [sqrt((D + 1) / D) q | 1],  k' = [k | hidden],  v' = [v | visible]
// so that q' . k' / sqrt(D + 1) = q . k / sqrt(D) + hidden / sqrt(D + 1). The last column of the
// result is 0 where all keys of a query are hidden: such a row is 0, as in PyTorch.
GraphValue AttentionWithHiddenKeys(GraphRecorder& r, const Shape& q, bool ids) {
  const std::int64_t width = q[3];
  const Shape column = {q[0], q[1], q[2], 1};
  const auto part = [&](std::string_view name) { return StrCat(r.name(), ':', name); };
  const double scale = std::sqrt(1 + 1.0 / static_cast<double>(width));
  std::vector<GraphNode> nodes;
  const auto add = [&](std::string_view name, std::string op, std::vector<std::string> inputs,
                       std::map<std::string, std::vector<std::int64_t>> integers,
                       std::map<std::string, double> numbers) {
    nodes.push_back({.name = part(name),
                     .op = std::move(op),
                     .inputs = std::move(inputs),
                     .integers = std::move(integers),
                     .numbers = std::move(numbers)});
  };
  std::string mask = r.InputName(3);
  if (ids) {
    add("mask", "numbers", {mask}, {}, {});
    mask = part("mask");
  }
  add("is_hidden", "equal", {mask}, {}, {{"to", 0}});
  add("score", "scale", {part("is_hidden")}, {}, {{"factor", kHiddenScore}});
  add("of_keys", "view", {part("score")}, {{"size", {q[0], 1, q[2], 1}}}, {});
  add("hidden", "repeat", {part("of_keys")}, {{"size", column}}, {});
  add("not_hidden", "scale", {part("is_hidden")}, {}, {{"factor", -1}});
  add("visible", "shift", {part("not_hidden")}, {}, {{"amount", 1}});
  add("of_values", "view", {part("visible")}, {{"size", {q[0], 1, q[2], 1}}}, {});
  add("counted", "repeat", {part("of_values")}, {{"size", column}}, {});
  add("zeros", "scale", {part("hidden")}, {}, {{"factor", 0}});
  add("ones", "shift", {part("zeros")}, {}, {{"amount", 1}});
  add("scaled", "scale", {r.InputName(0)}, {}, {{"factor", scale}});
  add("q", "cat", {part("scaled"), part("ones")}, {{"dim", {3}}}, {});
  add("k", "cat", {r.InputName(1), part("hidden")}, {{"dim", {3}}}, {});
  add("v", "cat", {r.InputName(2), part("counted")}, {{"dim", {3}}}, {});
  add("y", "attention", {part("q"), part("k"), part("v")}, {{"causal", {r.Integer("causal")}}}, {});
  add("kept", "slice", {part("y")},
      {{"dim", {3}}, {"start", {0}}, {"end", {width}}, {"keepdim", {1}}}, {});
  add("seen", "slice", {part("y")},
      {{"dim", {3}}, {"start", {width}}, {"end", {width + 1}}, {"keepdim", {1}}}, {});
  add("of_seen", "select", {part("kept"), part("seen")}, {}, {});
  return r.Expand(nodes);
}

GraphValue RecordMaskedAttention(GraphRecorder& r) {
  const Shape q = r.InOrPart(0).sizes;
  const GraphValue mask = r.In(3);
  if (!r.ok()) return {};
  const bool fits = q.size() == 4 && mask.sizes == Shape{q[0], q[2]};
  if (!r.Expect(fits, "expected [samples, heads, length, width] and a mask [samples, length]",
                mask)) {
    return {};
  }
  if (r.IsTextMask(mask.id)) return ApplyAttention(r, r.lengths_of_texts());
  return AttentionWithHiddenKeys(r, q, r.recorder().dtype(mask.id) == DType::kI32);
}

template <PoolKind kKind>
GraphValue RecordPoolRows(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  const bool fits = x.rank() == 3 && x.sizes[0] == -1 && x.sizes[1] > 0 && x.sizes[2] > 0;
  if (!r.Expect(fits, "expected [samples, length, width]", x)) return {};
  const ValueId rows = r.Rows(x, RowMajor(3), 1);
  return InMemoryOrder(r.Apply(std::make_shared<PoolRows>(kKind, x.sizes[1]), {rows}),
                       {-1, x.sizes[2]}, RowMajor(2));
}

}  // namespace

std::vector<GraphOp> SequenceOps() {
  return {
      {"embedding", 2, 0, 0, {}, RecordEmbedding},
      {"embedding_with_padding",
       2,
       0,
       0,
       {{.name = "padding_idx", .max_value = 0x7fffffff}},
       RecordPaddedEmbedding},
      {"positions", 0, 1, 0, {AnyIntegers("size")}, RecordPositions},
      {"attention", 3, 0, 0, {Flag("causal")}, RecordAttention},
      {"masked_attention", 4, 0, 0, {Flag("causal")}, RecordMaskedAttention},
      {"rotary", 1, 2, 0, {}, RecordRotary},
      {"first_row", 1, 0, 0, {}, RecordPoolRows<PoolKind::kFirst>},
      {"mean_rows", 1, 0, 0, {}, RecordPoolRows<PoolKind::kMean>},
  };
}

}  // namespace gaccd
