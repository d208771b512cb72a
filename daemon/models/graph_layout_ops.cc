#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/models/graph_op_families.h"

namespace gaccd {
namespace {

GraphValue RecordView(GraphRecorder& r) {
  GraphValue x = r.InOrPart(0);
  const Shape& size = r.Integers("size");
  const auto as_it_lies = ViewOf(x, size);
  if (as_it_lies) return *as_it_lies;
  if (!r.Expect(ProductOfSizes(size) == ProductOfSizes(x.sizes),
                StrCat("expected as many elements as ", ToString(size), " has"), x)) {
    return {};
  }
  const DimensionOrder order = RowMajor(x.rank());
  x = LyingAs(r.InOrder(r.In(0), order), x.sizes, order);
  const auto view = ViewOf(x, size);
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
  auto part = PartOf(x, static_cast<std::size_t>(dimension), first, last);
  if (!r.Expect(part.has_value(), "expected a part of the inner dimensions of a value", x)) {
    return {};
  }
  if (r.Integer("keepdim") != 0) return *part;
  Shape sizes = part->sizes;
  sizes.erase(sizes.begin() + dimension);
  const auto without = ViewOf(*part, sizes);
  (void)r.Expect(without.has_value(), "expected one index without keepdim", *part);
  return without.value_or(GraphValue{});
}

}  // namespace

std::vector<GraphOp> LayoutOps() {
  constexpr double kMostIndex = 1LL << 40;
  return {
      {"view", 1, 0, 0, {AnyIntegers("size")}, RecordView},
      {"permute", 1, 0, 0, {AnyIntegers("dims")}, RecordPermute},
      {"slice",
       1,
       0,
       0,
       {{.name = "dim", .most = 8},
        {.name = "start", .most = kMostIndex},
        {.name = "end", .most = kMostIndex},
        Flag("keepdim")},
       RecordSlice},
  };
}

}  // namespace gaccd
