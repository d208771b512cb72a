#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/models/graph_op_families.h"
#include "daemon/ops/attention.h"
#include "daemon/ops/embedding.h"
#include "daemon/ops/number_functions.h"
#include "daemon/ops/pool_rows.h"

namespace gaccd {
namespace {

const DimensionOrder kHeads = {0, 2, 1, 3};  // [B, H, T, D] lies as [B, T, H, D]

GraphValue EmbeddingOf(GraphRecorder& r, std::int32_t padding) {
  const GraphValue ids = r.In(0);
  const GraphValue table = r.In(1);
  if (!r.Expect(table.rank() == 2 && table.sizes[0] > 0, "expected a table [rows, width]", table)) {
    return {};
  }
  const DimensionOrder order = RowMajor(ids.rank());
  ValueId id = r.InOrder(ids, order);
  if (!r.ok()) return {};
  if (r.recorder().dtype(id) == DType::kF32) {
    id = r.Apply(std::make_shared<IdFunction>(IdFunctionKind::kIdsOfNumbers), {id});
  }
  if (r.ok() && r.recorder().shape(id).size() != 2) {
    id = r.As(id, {Elements(r.CountsOf(ids.sizes, order))});
  }
  const ValueId y = r.Apply(std::make_shared<Embedding>(r.recorder().activations(), padding),
                            {id, r.Shaped(table, RowMajor(2))});
  Shape sizes = ids.sizes;
  sizes.push_back(table.sizes[1]);
  return LyingAs(y, sizes, RowMajor(sizes.size()));
}

GraphValue RecordEmbedding(GraphRecorder& r) { return EmbeddingOf(r, -1); }

GraphValue RecordPaddedEmbedding(GraphRecorder& r) {
  return EmbeddingOf(r, static_cast<std::int32_t>(r.Integer("padding_idx")));
}

GraphValue RecordPositions(GraphRecorder& r) {
  const GraphValue table = r.In(0);
  const Shape& size = r.Integers("size");
  const bool fits = table.rank() == 2 && size.size() >= 2 && ProductOfSizes(size) > 0 &&
                    size.back() == table.sizes[1] &&
                    *ProductOfSizes(size) == size[size.size() - 2] * size.back() &&
                    size[size.size() - 2] <= table.sizes[0];
  if (!r.Expect(fits, StrCat("expected a table of at least ", ToString(size)), table)) return {};
  return LyingAs(table.id, size, RowMajor(size.size()));
}

// The matrix [rows, 3 H D] whose rows are [q | k | v]; nothing where q, k and v are none of one.
std::optional<ValueId> PackedRows(GraphRecorder& r, const Shape& sizes) {
  const std::int64_t width = sizes[1] * sizes[3];
  std::optional<ValueId> matrix;
  for (std::size_t i = 0; i < 3; ++i) {
    const GraphValue one = r.InOrPart(i);
    if (!one.part || one.sizes != sizes || !LiesAs(one, kHeads)) return std::nullopt;
    const bool fits = one.part->columns == 3 * width && one.part->width == width &&
                      one.part->first == static_cast<std::int64_t>(i) * width;
    if (!fits || (matrix && *matrix != one.part->matrix)) return std::nullopt;
    matrix = one.part->matrix;
  }
  const std::int64_t rows = CountOf(sizes[0], r.recorder().samples()) * sizes[2];
  return r.As(*matrix, {rows, 3 * width});
}

GraphValue RecordAttention(GraphRecorder& r) {
  const GraphValue q = r.InOrPart(0);
  const bool fits = q.rank() == 4 && q.sizes[0] < 0 && *ProductOfSizes(q.sizes) < 0;
  if (!r.Expect(fits, "expected [samples, heads, length, width]", q)) return {};
  std::vector<ValueId> rows;
  if (const auto packed = PackedRows(r, q.sizes)) {
    rows = {*packed};
  } else {
    for (const std::size_t i : {0, 1, 2}) {
      const GraphValue one = r.In(i);
      const std::string expected = StrCat("expected the shape of q, ", ToString(q.sizes));
      if (!r.Expect(one.sizes == q.sizes, expected, one)) return {};
      rows.push_back(r.Rows(one, kHeads, 2));
    }
  }
  const AttentionOptions options{
      .heads = q.sizes[1], .length = q.sizes[2], .causal = r.Integer("causal") != 0};
  return LyingAs(r.Apply(std::make_shared<Attention>(options), std::move(rows)), q.sizes, kHeads);
}

template <PoolKind kKind>
GraphValue RecordPoolRows(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  const bool fits = x.rank() == 3 && x.sizes[0] == -1 && x.sizes[1] > 0 && x.sizes[2] > 0;
  if (!r.Expect(fits, "expected [samples, length, width]", x)) return {};
  const ValueId rows = r.Rows(x, RowMajor(3), 1);
  return LyingAs(r.Apply(std::make_shared<PoolRows>(kKind, x.sizes[1]), {rows}), {-1, x.sizes[2]},
                 RowMajor(2));
}

}  // namespace

std::vector<GraphOp> SequenceOps() {
  return {
      {"embedding", 2, 0, 0, {}, RecordEmbedding},
      {"embedding_with_padding",
       2,
       0,
       0,
       {{.name = "padding_idx", .most = 0x7fffffff}},
       RecordPaddedEmbedding},
      {"positions", 0, 1, 0, {AnyIntegers("size")}, RecordPositions},
      {"attention", 3, 0, 0, {Flag("causal")}, RecordAttention},
      {"first_row", 1, 0, 0, {}, RecordPoolRows<PoolKind::kFirst>},
      {"mean_rows", 1, 0, 0, {}, RecordPoolRows<PoolKind::kMean>},
  };
}

}  // namespace gaccd
