#include <string>
#include <utility>
#include <vector>

#include "daemon/autograd/add.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/rearrange.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/ops/product/batched_product.h"
#include "tests/support/graph_cases.h"

namespace gaccd {
namespace {

ValueId InCaseType(GraphBench& bench, const CaseSize& s, ValueId x) {
  return s.dtype == DType::kF32 ? x : bench.Apply(std::make_shared<Cast>(s.dtype), {x});
}

// A parameter, so that the gradient can be seen.
ValueId Value(GraphBench& bench, const CaseSize& s, const std::string& name, const Shape& shape,
              double limit = 1) {
  return InCaseType(bench, s, bench.Parameter(name, shape, limit));
}

ValueId DistanceToTargets(GraphBench& bench, ValueId y) {
  const ValueId flat = bench.Rows(y);
  const Shape shape = bench.graph().value(flat).spec.shape;
  return bench.Apply(std::make_shared<MeanSquaredError>(), {flat, bench.Input("targets", shape)});
}

ValueId CombineCase(GraphBench& bench, const CaseSize& s, CombineKind kind, const Shape& a,
                    const Shape& b) {
  const ValueId left = Value(bench, s, "a", a);
  ValueId right = bench.Parameter("b", b);  // stays f32
  if (kind == CombineKind::kDivide) {       // away from 0
    right = bench.Apply(std::make_shared<NumberFunction>(NumberKind::kAffine, 0.25, 2), {right});
  }
  return DistanceToTargets(bench, bench.Apply(std::make_shared<Combine>(kind), {left, right}));
}

ValueId SelectCase(GraphBench& bench, const CaseSize& s, const Shape& a, const Shape& mask) {
  std::vector<float> values(static_cast<std::size_t>(Elements(mask)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 3);
  return DistanceToTargets(
      bench, bench.Apply(std::make_shared<Combine>(CombineKind::kSelect),
                         {Value(bench, s, "a", a), bench.Input("mask", mask, std::move(values))}));
}

ValueId RearrangeCase(GraphBench& bench, const CaseSize& s, const Rearrangement& order) {
  const ValueId x = Value(bench, s, "x", order.from);
  return DistanceToTargets(bench, bench.Apply(std::make_shared<Rearrange>(order), {x}));
}

ValueId ReduceSumCase(GraphBench& bench, const CaseSize& s, const Shape& x, const Shape& to) {
  const ValueId all = Value(bench, s, "x", x);
  const ValueId y = bench.Apply(std::make_shared<ReduceSum>(to, s.dtype), {all});
  return DistanceToTargets(
      bench, bench.Apply(std::make_shared<NumberFunction>(NumberKind::kAffine, 0.125), {y}));
}

ValueId ProductCase(GraphBench& bench, const CaseSize& s, bool transpose_a, bool transpose_b) {
  const ValueId a =
      Value(bench, s, "a", transpose_a ? Shape{3, s.in, s.rows} : Shape{3, s.rows, s.in}, 0.5);
  const ValueId b =
      Value(bench, s, "b", transpose_b ? Shape{3, s.out, s.in} : Shape{3, s.in, s.out}, 0.5);
  return DistanceToTargets(
      bench, bench.Apply(std::make_shared<BatchedProduct>(transpose_a, transpose_b), {a, b}));
}

// Of values around 1.5, within +-0.5.
ValueId NumbersCase(GraphBench& bench, const CaseSize& s, NumberKind kind, double a, double b = 0) {
  const ValueId x = Value(bench, s, "x", {s.rows, s.in}, 0.5);
  const ValueId moved =
      bench.Apply(std::make_shared<NumberFunction>(NumberKind::kAffine, 1, 1.5), {x});
  return DistanceToTargets(bench,
                           bench.Apply(std::make_shared<NumberFunction>(kind, a, b), {moved}));
}

// Parts of one value that overlap, which others read, too: the first part is added to a gradient
// that is read later, the others in place.
ValueId PartsCase(GraphBench& bench, const CaseSize& s) {
  const Shape shape = {s.rows, 2 * s.in + 1};
  const auto scaled = [&](const std::string& name) {
    return bench.Apply(std::make_shared<NumberFunction>(NumberKind::kAffine, 2),
                       {Value(bench, s, name, shape)});
  };
  const ValueId w = scaled("w");
  const ValueId x = scaled("x");
  std::vector<ValueId> parts;
  for (const Rearrangement::Dimension& part : std::vector<Rearrangement::Dimension>{
           {s.in + 1, 1}, {s.in + 1, 1, s.in}, {s.in + 1, 1, 2 * s.in, -1}}) {
    parts.push_back(bench.Apply(
        std::make_shared<Rearrange>(Rearrangement{.from = shape, .to = {{s.rows, 0}, part}}), {x}));
  }
  parts.push_back(bench.Apply(std::make_shared<Add>(), {x, w}));
  return DistanceToTargets(bench, bench.Apply(std::make_shared<Concat>(), std::move(parts)));
}

const GraphCase kShapeCases[] = {
    {"rearrange_parts_of_one_value", PartsCase},
    {"combine_add_of_rows",
     [](GraphBench& b, const CaseSize& s) {
       return CombineCase(b, s, CombineKind::kAdd, {s.rows, 3, s.in}, {s.rows, 1, s.in});
     }},
    {"combine_multiply",
     [](GraphBench& b, const CaseSize& s) {
       return CombineCase(b, s, CombineKind::kMultiply, {s.rows, s.in}, {s.rows, s.in});
     }},
    {"combine_multiply_of_channels",  // squeeze and excitation
     [](GraphBench& b, const CaseSize& s) {
       return CombineCase(b, s, CombineKind::kMultiply, {s.rows, 2, 3, s.in}, {s.rows, 1, 1, s.in});
     }},
    {"combine_multiply_of_a_value_for_each_row",
     [](GraphBench& b, const CaseSize& s) {
       return CombineCase(b, s, CombineKind::kMultiply, {s.rows, s.in, 2}, {s.rows, s.in, 1});
     }},
    {"combine_multiply_of_both",
     [](GraphBench& b, const CaseSize& s) {
       return CombineCase(b, s, CombineKind::kMultiply, {s.rows, 1, s.in}, {1, 3, s.in});
     }},
    {"combine_divide",
     [](GraphBench& b, const CaseSize& s) {
       return CombineCase(b, s, CombineKind::kDivide, {s.rows, s.in}, {s.rows, s.in});
     }},
    {"combine_divide_of_both",
     [](GraphBench& b, const CaseSize& s) {
       return CombineCase(b, s, CombineKind::kDivide, {s.rows, 1, s.in}, {1, 3, s.in});
     }},
    {"combine_select",
     [](GraphBench& b, const CaseSize& s) {
       return SelectCase(b, s, {s.rows, s.in}, {s.rows, s.in});
     }},
    {"combine_select_of_repeated_values",
     [](GraphBench& b, const CaseSize& s) {
       return SelectCase(b, s, {s.rows, 1, s.in}, {1, 3, s.in});
     }},
    {"combine_select_by_a_mask_for_each_row",
     [](GraphBench& b, const CaseSize& s) {
       return SelectCase(b, s, {s.rows, 3, s.in}, {s.rows, 3, 1});
     }},
    {"reduce_sum_of_the_last",
     [](GraphBench& b, const CaseSize& s) {
       return ReduceSumCase(b, s, {s.rows, 2, s.in}, {s.rows, 2, 1});
     }},
    {"reduce_sum_of_the_inner",
     [](GraphBench& b, const CaseSize& s) {
       return ReduceSumCase(b, s, {s.rows, s.out, 2, s.in}, {s.rows, 1, 2, s.in});
     }},
    {"reduce_sum_of_outer_and_last",
     [](GraphBench& b, const CaseSize& s) {
       return ReduceSumCase(b, s, {3, s.rows, s.in}, {1, s.rows, 1});
     }},
    {"rearrange_permuted",
     [](GraphBench& b, const CaseSize& s) {
       return RearrangeCase(
           b, s, {.from = {s.rows, 2, s.in, 3}, .to = {{3, 3}, {s.rows, 0}, {s.in, 2}, {2, 1}}});
     }},
    {"rearrange_part",  // every second row, and columns from the last on
     [](GraphBench& b, const CaseSize& s) {
       return RearrangeCase(
           b, s,
           {.from = {s.rows, 5, s.in}, .to = {{s.rows, 0}, {2, 1, 1, 2}, {s.in, 2, s.in - 1, -1}}});
     }},
    {"rearrange_repeated",
     [](GraphBench& b, const CaseSize& s) {
       return RearrangeCase(
           b, s, {.from = {s.rows, s.in}, .to = {{s.rows, 0}, {2, -1}, {s.in, 1}, {3, -1}}});
     }},
    {"rearrange_padded",
     [](GraphBench& b, const CaseSize& s) {
       const Rearrangement part{.from = {s.rows, s.in + 3}, .to = {{s.rows, 0}, {s.in, 1, 2}}};
       const ValueId x = Value(b, s, "x", {s.rows, s.in});
       return DistanceToTargets(
           b, b.Apply(std::make_shared<RearrangeGradient>(part, Shape{s.rows, s.in + 3}), {x}));
     }},
    {"batched_product",
     [](GraphBench& b, const CaseSize& s) { return ProductCase(b, s, false, false); }},
    {"batched_product_transposed",
     [](GraphBench& b, const CaseSize& s) { return ProductCase(b, s, false, true); }},
    {"batched_product_of_transposed",
     [](GraphBench& b, const CaseSize& s) { return ProductCase(b, s, true, false); }},
    {"batched_product_both_transposed",
     [](GraphBench& b, const CaseSize& s) { return ProductCase(b, s, true, true); }},
    {"concat",
     [](GraphBench& b, const CaseSize& s) {
       return DistanceToTargets(
           b, b.Apply(std::make_shared<Concat>(),
                      {Value(b, s, "x", {s.rows, s.in}), Value(b, s, "y", {s.rows, s.out}),
                       Value(b, s, "z", {s.rows, 1})}));
     }},
    {"concat_behind_input",  // which needs no gradient
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = InCaseType(b, s, b.Input("x", {s.rows, s.in}));
       return DistanceToTargets(
           b, b.Apply(std::make_shared<Concat>(),
                      {x, Value(b, s, "y", {s.rows, s.out}), Value(b, s, "z", {s.rows, 1})}));
     }},
    {"square",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kPower, 2); }},
    {"reciprocal_root",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kPower, -0.5); }},
    {"power_of_any",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kPower, 1.3); }},
    {"hardsigmoid",
     [](GraphBench& b, const CaseSize& s) {
       return NumbersCase(b, s, NumberKind::kHardsigmoid, 0);
     }},
    {"clamp_within",
     [](GraphBench& b, const CaseSize& s) {
       return NumbersCase(b, s, NumberKind::kClamp, 0.5, 3);
     }},
    {"exp",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kExp, 0); }},
    {"log",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kLog, 0); }},
    {"expm1",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kExpm1, 0); }},
    {"log1p",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kLog1p, 0); }},
    {"softplus",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kSoftplus, 0); }},
    {"erfc",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kErfc, 0); }},
    {"root",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kRoot, 0); }},
    {"sin",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kSin, 0); }},
    {"cos",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kCos, 0); }},
    {"erf",
     [](GraphBench& b, const CaseSize& s) { return NumbersCase(b, s, NumberKind::kErf, 0); }},
    {"floor",  // 1 in all places: finite differences of a step would be large
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = Value(b, s, "x", {s.rows, s.in}, 0.01);
       const auto number = [&](NumberKind kind, double a, double add, ValueId of) {
         return b.Apply(std::make_shared<NumberFunction>(kind, a, add), {of});
       };
       const ValueId steps =
           number(NumberKind::kFloor, 0, 0, number(NumberKind::kAffine, 1, 1.5, x));
       return DistanceToTargets(b, b.Apply(std::make_shared<Add>(), {x, steps}));
     }},
    {"dropout_of_whole_samples",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = Value(b, s, "x", {3 * s.rows, s.in});
       const ValueId ids = b.Longs("sample_ids", {7, 1LL << 40, 0});
       const DropoutOptions options{
           .probability = 0.4F, .seed = 3, .layer = 5, .whole_samples = true};
       return DistanceToTargets(
           b, b.Apply(std::make_shared<Dropout>(options), {x, ids, b.Longs("update", {12})}));
     }},
    {"dropout_of_a_part",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = Value(b, s, "x", {3 * s.rows * 2, s.in});
       const ValueId ids = b.Longs("sample_ids", {7, 1LL << 40, 0});
       const DropoutOptions options{.probability = 0.4F,
                                    .seed = 3,
                                    .layer = 5,
                                    .cut = {{s.rows, s.rows}, {2, 3}, {s.in, s.in + 2}}};
       return DistanceToTargets(
           b, b.Apply(std::make_shared<Dropout>(options), {x, ids, b.Longs("update", {12})}));
     }},
    {"uniform_noise",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId x = Value(b, s, "x", {3 * s.rows, s.in});
       const ValueId ids = b.Longs("sample_ids", {7, 1LL << 40, 0});
       const DropoutOptions options{.probability = 1, .seed = 3, .layer = 5, .uniform = true};
       return DistanceToTargets(
           b, b.Apply(std::make_shared<Dropout>(options), {x, ids, b.Longs("update", {12})}));
     }},
    {"embedding_with_padding",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId ids = b.Ids("ids", {s.rows, 3}, s.out + 2);
       const ValueId table = b.Parameter("table", {s.out + 2, s.in});
       return DistanceToTargets(
           b, b.Apply(std::make_shared<Embedding>(s.dtype, static_cast<std::int32_t>(s.out) + 2),
                      {ids, table}));  // none of them is the padding
     }},
    {"conv_transpose2d",
     [](GraphBench& b, const CaseSize& s) {
       const Conv2dOptions options{.stride = {2, 1}, .padding = {1, 0}};
       const ValueId x = Value(b, s, "x", {2, 3, 2, 2 * s.in});
       const ValueId w =
           b.Parameter("weight", {2 * s.in, s.out, 3, 2}, 0.5 / static_cast<double>(s.in));
       // (3 - 1) 2 - 2 + 2 + an output padding of 1 + 1 rows, 1 + 1 + 1 columns.
       return DistanceToTargets(
           b, b.Apply(std::make_shared<ConvTranspose2d>(options, ImagePair{6, 3}), {x, w}));
     }},
};

}  // namespace

std::span<const GraphCase> ShapeCases() { return kShapeCases; }

}  // namespace gaccd
