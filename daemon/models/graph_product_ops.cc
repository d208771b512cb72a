#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/models/graph_ops.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/ops/product/batched_product.h"

namespace gaccd {
namespace {

bool HasSamples(const GraphValue& value) {
  return std::ranges::any_of(value.sizes, [](std::int64_t size) { return size < 0; });
}

// The common sizes; nullopt if they are incompatible.
std::optional<Shape> BroadcastSizes(const GraphValue& a, const GraphValue& b) {
  Shape sizes = a.sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) sizes[i] = b.sizes[i];
    if (b.sizes[i] != 1 && b.sizes[i] != sizes[i]) return std::nullopt;
  }
  return sizes;
}

// In the order of dimensions of the larger operand.
GraphValue RecordBroadcast(GraphRecorder& r, CombineKind kind) {
  GraphValue a = r.In(0);
  GraphValue b = r.In(1);
  if (!r.ok()) return {};
  const std::size_t rank = std::max(a.rank(), b.rank());
  a = WithRank(a, rank);
  b = WithRank(b, rank);
  const auto sizes = BroadcastSizes(a, b);
  if (!r.Expect(sizes.has_value(), StrCat("expected sizes of ", ToString(a.sizes), ", or 1"), b)) {
    return {};
  }
  const DimensionOrder order =
      MemoryOrder(b.sizes == *sizes && a.sizes != *sizes ? b : a).value_or(RowMajor(rank));
  const ValueId first = r.Shaped(a, order);
  const ValueId second = r.Shaped(b, order);
  if (!r.ok()) return {};
  const ValueId y = r.Apply(std::make_shared<Combine>(kind), {first, second});
  return InMemoryOrder(y, *sizes, order);
}

// x [.., T, W] + table [T, W] or [1, W], the same for all samples. nullopt for other shapes, or if
// the table is not f32 (rows of an embedding).
std::optional<GraphValue> AddTable(GraphRecorder& r, const GraphValue& x, const GraphValue& table) {
  Shape own = table.sizes;  // without leading ones
  own.erase(own.begin(), std::ranges::find_if(own, [](std::int64_t size) { return size != 1; }));
  while (own.size() < 2) own.insert(own.begin(), 1);
  const bool fits = x.rank() >= 2 && table.rank() <= x.rank() && own.size() == 2 &&
                    HasMemoryOrder(table, RowMajor(table.rank())) && own[1] == x.sizes.back() &&
                    r.recorder().dtype(table.id) == DType::kF32 &&
                    (own[0] == 1 || own[0] == x.sizes[x.rank() - 2]);
  if (!fits) return std::nullopt;
  const DimensionOrder order = RowMajor(x.rank());
  const ValueId rows = r.Rows(x, order, 1);
  if (!r.ok()) return GraphValue{};
  const Shape found = r.recorder().shape(table.id);  // may have more rows: positions()
  const bool as_it_is = found.size() == 2 && found[1] == own[1] && found[0] >= own[0];
  const ValueId matrix = as_it_is ? table.id : r.As(table.id, own);
  return InMemoryOrder(r.Apply(std::make_shared<AddPositions>(own[0]), {rows, matrix}), x.sizes,
                       order);
}

GraphValue RecordAdd(GraphRecorder& r) {
  const GraphValue a = r.In(0);
  const GraphValue b = r.In(1);
  if (!r.ok()) return {};
  if (HasSamples(a) && a.sizes == b.sizes) {
    const DimensionOrder order = MemoryOrder(a).value_or(RowMajor(a.rank()));
    const ValueId first = r.InOrder(a, order);
    const ValueId second = r.InOrder(b, order);
    if (!r.ok()) return {};
    const bool one_type = r.recorder().dtype(first) == r.recorder().dtype(second);
    if (one_type) {
      const ValueId sum =
          r.Apply(std::make_shared<Add>(), {first, r.As(second, r.recorder().shape(first))});
      return InMemoryOrder(sum, a.sizes, order);
    }
  }
  if (HasSamples(a) != HasSamples(b)) {
    const bool first = HasSamples(a);
    if (auto sum = AddTable(r, first ? a : b, first ? b : a)) return *sum;
  }
  return RecordBroadcast(r, CombineKind::kAdd);
}

template <CombineKind kKind>
GraphValue RecordCombine(GraphRecorder& r) {
  return RecordBroadcast(r, kKind);
}

// Only over dimensions that do not count samples.
template <bool kMean>
GraphValue RecordSum(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  const std::vector<std::int64_t>& dims = r.Integers("dims");
  if (!r.ok()) return {};
  Shape kept = x.sizes;
  Shape without;
  for (const std::int64_t dim : dims) {
    const bool fits =
        dim >= 0 && dim < std::ssize(kept) && x.sizes[static_cast<std::size_t>(dim)] > 0;
    if (!r.Expect(fits,
                  StrCat("dims: expected dimensions that count no samples, found ", ToString(dims)),
                  x)) {
      return {};
    }
    kept[static_cast<std::size_t>(dim)] = 1;
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (std::ranges::find(dims, static_cast<std::int64_t>(i)) == dims.end()) {
      without.push_back(kept[i]);
    }
  }
  const DimensionOrder order = MemoryOrder(x).value_or(RowMajor(x.rank()));
  const ValueId all = r.Shaped(x, order);
  if (!r.ok()) return {};
  ValueId y = r.Apply(
      std::make_shared<ReduceSum>(r.ActualSizes(kept, order), r.recorder().dtype(all)), {all});
  if (kMean) {
    double count = 1;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i] != x.sizes[i]) count *= static_cast<double>(x.sizes[i]);
    }
    y = r.Apply(std::make_shared<NumberFunction>(NumberKind::kAffine, 1 / count), {y});
  }
  const GraphValue sum = InMemoryOrder(y, kept, order);
  return r.Integer("keepdim") != 0 ? sum : *MakeView(sum, without);
}

// Batched matrices; not copied if only their last two dimensions are exchanged in memory.
struct Matrices {
  ValueId id = nn::kNoValue;
  bool transposed = false;
};
Matrices ReadMatrices(GraphRecorder& r, const GraphValue& x) {
  DimensionOrder order = RowMajor(x.rank());
  DimensionOrder exchanged = order;
  std::swap(exchanged[x.rank() - 2], exchanged[x.rank() - 1]);
  const bool transposed = !HasMemoryOrder(x, order) && HasMemoryOrder(x, exchanged);
  if (transposed) order = exchanged;
  const ValueId id = r.InOrder(x, order);
  if (!r.ok()) return {};
  const Shape memory = r.ActualSizes(x.sizes, order);
  const std::int64_t rows = memory[x.rank() - 2];
  const std::int64_t columns = memory.back();
  const std::int64_t count = Elements({memory.begin(), memory.end() - 2});
  return {r.AsActivation(r.As(id, {count, rows, columns})), transposed};
}

GraphValue RecordMatmul(GraphRecorder& r) {
  const GraphValue a = r.In(0);
  GraphValue b = r.In(1);
  if (!r.ok()) return {};
  const bool matrices = a.rank() >= 2 && b.rank() == a.rank();
  if (!r.Expect(matrices, "expected values of as many dimensions, at least 2", b)) return {};
  const std::size_t last = a.rank() - 1;
  if (r.Integer("transpose") != 0) {
    DimensionOrder dims = RowMajor(b.rank());
    std::swap(dims[last - 1], dims[last]);
    b = PermuteDimensions(b, dims);
  }
  // Also rows of samples times a matrix common to all samples.
  const bool fits =
      std::ranges::equal(std::span(a.sizes).first(last - 1), std::span(b.sizes).first(last - 1)) &&
      a.sizes[last] == b.sizes[last - 1] && a.sizes[last] > 0 &&
      (a.sizes[last - 1] > 0 || !HasSamples(b)) && b.sizes[last] > 0;
  if (!r.Expect(fits, StrCat("expected matrices for ", ToString(a.sizes)), b)) return {};
  const Matrices left = ReadMatrices(r, a);
  const Matrices right = ReadMatrices(r, b);
  if (!r.ok()) return {};
  Shape sizes = a.sizes;
  sizes[last] = b.sizes[last];
  const ValueId y = r.Apply(std::make_shared<BatchedProduct>(left.transposed, right.transposed),
                            {left.id, right.id});
  return InMemoryOrder(y, sizes, RowMajor(sizes.size()));
}

GraphValue RecordCat(GraphRecorder& r) {
  const GraphValue first = r.In(0);
  const auto dim = static_cast<std::size_t>(r.Integer("dim"));
  const bool fits = dim < first.rank() && first.sizes[dim] > 0;
  if (!r.Expect(fits, "dim: expected a dimension that counts no samples", first)) return {};
  const DimensionOrder order = MemoryOrder(first).value_or(RowMajor(first.rank()));
  const auto place = std::ranges::find(order, dim) - order.begin();
  Shape sizes = first.sizes;
  sizes[dim] = 0;
  std::vector<ValueId> matrices;
  for (std::size_t i = 0; i < r.inputs(); ++i) {
    const GraphValue x = r.In(i);
    if (!r.ok()) return {};
    Shape others = x.sizes;
    if (dim < others.size()) others[dim] = first.sizes[dim];
    if (!r.Expect(others == first.sizes && x.sizes[dim] > 0,
                  StrCat("expected ", ToString(first.sizes), ", but for dimension ", dim), x)) {
      return {};
    }
    sizes[dim] += x.sizes[dim];
    const ValueId id = r.InOrder(x, order);
    if (!r.ok()) return {};
    const Shape memory = r.ActualSizes(x.sizes, order);
    matrices.push_back(r.As(id, {Elements({memory.begin(), memory.begin() + place}),
                                 Elements({memory.begin() + place, memory.end()})}));
  }
  if (!r.ok()) return {};
  const auto is_like_first = [&](ValueId id) {
    return r.recorder().dtype(id) == r.recorder().dtype(matrices[0]);
  };
  if (!std::ranges::all_of(matrices, is_like_first)) {  // not for ids, which must stay exact
    for (ValueId& id : matrices) id = r.AsActivation(id);
  }
  return InMemoryOrder(r.Apply(std::make_shared<Concat>(), std::move(matrices)), sizes, order);
}

}  // namespace

std::vector<GraphOp> ProductOps() {
  return {
      {"add", 2, 0, 0, {}, RecordAdd},
      {"mul", 2, 0, 0, {}, RecordCombine<CombineKind::kMultiply>},
      {"div", 2, 0, 0, {}, RecordCombine<CombineKind::kDivide>},
      {"select", 2, 0, 0, {}, RecordCombine<CombineKind::kSelect>},
      {"sum", 1, 0, 0, {AnyIntegers("dims"), Flag("keepdim")}, RecordSum<false>},
      {"mean", 1, 0, 0, {AnyIntegers("dims"), Flag("keepdim")}, RecordSum<true>},
      {"matmul", 2, 0, 0, {Flag("transpose")}, RecordMatmul},
      {.name = "cat",
       .attributes = {{.name = "dim", .max_value = 8}},
       .record = RecordCat,
       .many = true},
  };
}

}  // namespace gaccd
