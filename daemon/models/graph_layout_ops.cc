#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/models/graph_ops.h"
#include "daemon/ops/layout/rearrange.h"

namespace gaccd {
namespace {

GraphValue RecordView(GraphRecorder& r) {
  GraphValue x = r.InOrPart(0);
  const Shape& size = r.Integers("size");
  const auto as_it_lies = MakeView(x, size);
  if (as_it_lies) return *as_it_lies;
  if (!r.Expect(MultiplySizes(size) == MultiplySizes(x.sizes),
                StrCat("expected as many elements as ", ToString(size), " has"), x)) {
    return {};
  }
  const DimensionOrder order = RowMajor(x.rank());
  x = InMemoryOrder(r.InOrder(r.In(0), order), x.sizes, order);
  const auto view = MakeView(x, size);
  (void)r.Expect(view.has_value(), StrCat("expected the shape ", ToString(size)), x);
  return view.value_or(GraphValue{});
}

GraphValue RecordPermute(GraphRecorder& r) {
  const GraphValue x = r.InOrPart(0);
  const std::vector<std::int64_t>& dims = r.Integers("dims");
  std::vector<std::int64_t> sorted = dims;
  std::ranges::sort(sorted);
  bool fits = dims.size() == x.rank();
  for (std::size_t i = 0; fits && i < sorted.size(); ++i) {
    fits = sorted[i] == static_cast<std::int64_t>(i);
  }
  if (!r.Expect(fits, StrCat("dims: expected a permutation, found ", ToString(dims)), x)) return {};
  return PermuteDimensions(x, {dims.begin(), dims.end()});
}

// Copies indices start, start + step, .. of a dimension.
GraphValue RecordStridedSlice(GraphRecorder& r, const GraphValue& x, std::size_t dim,
                              std::int64_t start, std::int64_t count, std::int64_t step) {
  const DimensionOrder order = MemoryOrder(x).value_or(RowMajor(x.rank()));
  Rearrangement part{.from = r.ActualSizes(x.sizes, order), .to = {}};
  for (std::size_t place = 0; place < order.size(); ++place) {
    const auto source = static_cast<int>(place);
    part.to.push_back(order[place] == dim ? Rearrangement::Dimension{count, source, start, step}
                                          : Rearrangement::Dimension{part.from[place], source});
  }
  const ValueId id = r.InOrder(x, order);
  if (!r.ok()) return {};
  Shape sizes = x.sizes;
  sizes[dim] = count;
  return InMemoryOrder(r.Apply(std::make_shared<Rearrange>(std::move(part)), {id}), sizes, order);
}

GraphValue RecordTake(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  const auto dim = static_cast<std::size_t>(r.Integer("dim"));
  const std::int64_t start = r.Integer("start");
  const std::int64_t count = r.Integer("count");
  const std::int64_t step = r.Integer("step");
  const std::int64_t last = start + (count - 1) * step;
  const bool fits = dim < x.rank() && std::max(start, last) < x.sizes[dim] && last >= 0;
  if (!r.Expect(fits,
                StrCat("expected ", count, " indices ", start, ", ", start + step,
                       ", .. of dimension ", dim, ", which counts no samples"),
                x)) {
    return {};
  }
  return RecordStridedSlice(r, x, dim, start, count, step);
}

// Does not copy slices of columns, because three of them may be q, k and v of attention.
GraphValue RecordSlice(GraphRecorder& r) {
  const GraphValue x = r.In(0);
  const std::int64_t dimension = r.Integer("dim");
  const std::int64_t first = r.Integer("start");
  const std::int64_t last = r.Integer("end");
  const bool fits = dimension < std::ssize(x.sizes) && first < last &&
                    last <= x.sizes[static_cast<std::size_t>(dimension)];
  if (!r.Expect(fits, StrCat("expected indices [", first, ", ", last, ") of dimension ", dimension),
                x)) {
    return {};
  }
  const auto dim = static_cast<std::size_t>(dimension);
  const auto columns = MakePart(x, dim, first, last);
  const GraphValue part =
      columns ? *columns : RecordStridedSlice(r, x, dim, first, last - first, 1);
  if (!r.ok() || r.Integer("keepdim") != 0) return part;
  Shape sizes = part.sizes;
  sizes.erase(sizes.begin() + dimension);
  const auto without = MakeView(part, sizes);
  (void)r.Expect(without.has_value(), "expected one index without keepdim", part);
  return without.value_or(GraphValue{});
}

GraphValue RecordRepeat(GraphRecorder& r) {
  GraphValue x = r.In(0);
  const Shape& sizes = r.Integers("size");
  bool fits = x.rank() <= sizes.size();
  if (fits) x = WithRank(x, sizes.size());
  for (std::size_t i = 0; fits && i < sizes.size(); ++i) {
    fits = x.sizes[i] == sizes[i] || x.sizes[i] == 1;
  }
  if (!r.Expect(fits, StrCat("expected sizes of ", ToString(sizes), ", or 1"), x)) return {};
  const DimensionOrder order = MemoryOrder(x).value_or(RowMajor(x.rank()));
  Rearrangement repeated;
  for (const std::size_t dim : order) {
    const std::int64_t count = ActualSize(sizes[dim], r.recorder().samples());
    const bool same = x.sizes[dim] == sizes[dim];
    const int source = same ? static_cast<int>(repeated.from.size()) : -1;
    if (same) repeated.from.push_back(count);
    repeated.to.push_back({.size = count, .source = source});
  }
  const ValueId id = r.InOrder(x, order);
  if (!r.ok()) return {};
  return InMemoryOrder(r.Apply(std::make_shared<Rearrange>(std::move(repeated)), {id}), sizes,
                       order);
}

GraphValue RecordPad(GraphRecorder& r) {
  constexpr std::int64_t kMost = 1 << 20;
  const GraphValue x = r.In(0);
  const std::vector<std::int64_t>& before = r.Integers("before");
  const std::vector<std::int64_t>& after = r.Integers("after");
  bool fits = before.size() == x.rank() && after.size() == x.rank();
  Shape sizes = x.sizes;
  for (std::size_t i = 0; fits && i < x.rank(); ++i) {
    const std::int64_t added = before[i] + after[i];
    fits = std::min(before[i], after[i]) >= 0 && std::max(before[i], after[i]) <= kMost &&
           (sizes[i] > 0 || added == 0);
    sizes[i] += added;
  }
  if (!r.Expect(fits, "expected what is before and after each dimension that counts no samples",
                x)) {
    return {};
  }
  const DimensionOrder order = MemoryOrder(x).value_or(RowMajor(x.rank()));
  Rearrangement part{.from = r.ActualSizes(sizes, order), .to = {}};
  for (const std::size_t dim : order) {
    part.to.push_back({.size = ActualSize(x.sizes[dim], r.recorder().samples()),
                       .source = static_cast<int>(part.to.size()),
                       .start = before[dim]});
  }
  const Shape padded = part.from;
  const Status fit = CheckShape(padded, DType::kF32);
  if (!fit.ok() && !r.Expect(false, fit.message(), x)) return {};
  const ValueId id = r.Shaped(x, order);
  if (!r.ok()) return {};
  return InMemoryOrder(r.Apply(std::make_shared<RearrangeGradient>(std::move(part), padded), {id}),
                       sizes, order);
}

}  // namespace

std::vector<GraphOp> LayoutOps() {
  constexpr double kMaxIndex = 1LL << 40;
  constexpr double kMaxStep = 1 << 20;
  return {
      {"view", 1, 0, 0, {AnyIntegers("size")}, RecordView},
      {"permute", 1, 0, 0, {AnyIntegers("dims")}, RecordPermute},
      {"slice",
       1,
       0,
       0,
       {{.name = "dim", .max_value = 8},
        {.name = "start", .max_value = kMaxIndex},
        {.name = "end", .max_value = kMaxIndex},
        Flag("keepdim")},
       RecordSlice},
      {"take",
       1,
       0,
       0,
       {{.name = "dim", .max_value = 8},
        {.name = "start", .max_value = kMaxIndex},
        {.name = "count", .min_value = 1, .max_value = kMaxIndex},
        {.name = "step", .min_value = -kMaxStep, .max_value = kMaxStep}},
       RecordTake},
      {"repeat", 1, 0, 0, {AnyIntegers("size")}, RecordRepeat},
      {"pad", 1, 0, 0, {AnyIntegers("before"), AnyIntegers("after")}, RecordPad},
  };
}

}  // namespace gaccd
