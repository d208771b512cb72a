#include "tests/support/exported_cases.h"

#include "daemon/ops/batched_product.h"
#include "daemon/ops/cast.h"
#include "daemon/ops/combine.h"
#include "daemon/ops/concat.h"
#include "daemon/ops/conv_transpose2d.h"
#include "daemon/ops/flatten.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/number_functions.h"
#include "daemon/ops/rearrange.h"

namespace gaccd {
namespace {

// Parameters, so that their gradients can be seen, in the type of the case.
ValueId Typed(GraphBench& bench, const CaseSize& s, const char* name, const Shape& shape,
              double limit = 1) {
  const ValueId x = bench.Parameter(name, shape, limit);
  return s.dtype == DType::kF32 ? x : bench.Apply(std::make_shared<Cast>(s.dtype), {x});
}
ValueId X(GraphBench& bench, const CaseSize& s) {
  return Typed(bench, s, "x", {s.rows, 3, 2 * s.in});
}

ValueId DistanceOfExported(GraphBench& bench, ValueId y) {
  const ValueId flat = bench.Apply(std::make_shared<Flatten>(), {y});
  const Shape shape = bench.graph().value(flat).spec.shape;
  return bench.Apply(std::make_shared<MeanSquaredError>(), {flat, bench.Input("targets", shape)});
}

ValueId CombineOf(GraphBench& b, const CaseSize& s, CombineKind kind, const Shape& other) {
  const ValueId y =
      b.Apply(std::make_shared<Combine>(kind), {X(b, s), Typed(b, s, "other", other)});
  return DistanceOfExported(b, y);
}

ValueId NumberOf(GraphBench& b, const CaseSize& s, NumberKind kind, double a = 0, double other = 0,
                 float shift = 0) {
  const ValueId x = X(b, s);
  // Away from the corners of the function.
  for (float& value : b.parameter("x")) value += value < 0 ? shift - 0.125F : shift + 0.125F;
  return DistanceOfExported(b, b.Apply(std::make_shared<NumberFunction>(kind, a, other), {x}));
}

ValueId RearrangeOf(GraphBench& b, const CaseSize& s, std::vector<Rearrangement::Dimension> to) {
  const Rearrangement order{.from = {s.rows, 3, 2 * s.in}, .to = std::move(to)};
  return DistanceOfExported(b, b.Apply(std::make_shared<Rearrange>(order), {X(b, s)}));
}

ValueId ProductOf(GraphBench& b, const CaseSize& s, bool transpose_a, bool transpose_b) {
  const std::int64_t k = 2 * s.in;
  const Shape left = transpose_a ? Shape{s.rows, k, 3} : Shape{s.rows, 3, k};
  const Shape right = transpose_b ? Shape{s.rows, s.out, k} : Shape{s.rows, k, s.out};
  return DistanceOfExported(b,
                            b.Apply(std::make_shared<BatchedProduct>(transpose_a, transpose_b),
                                    {Typed(b, s, "a", left, 0.5), Typed(b, s, "b", right, 0.5)}));
}

const GraphCase kExportedCases[] = {
    {"combine_add_of_a_row",
     [](GraphBench& b, const CaseSize& s) {
       return CombineOf(b, s, CombineKind::kAdd, {1, 1, 2 * s.in});
     }},
    {"combine_add_of_a_column",
     [](GraphBench& b, const CaseSize& s) {
       return CombineOf(b, s, CombineKind::kAdd, {s.rows, 3, 1});
     }},
    {"combine_multiply",
     [](GraphBench& b, const CaseSize& s) {
       return CombineOf(b, s, CombineKind::kMultiply, {s.rows, 3, 2 * s.in});
     }},
    {"combine_multiply_by_samples",
     [](GraphBench& b, const CaseSize& s) {
       return CombineOf(b, s, CombineKind::kMultiply, {s.rows, 1, 2 * s.in});
     }},
    {"combine_multiply_of_both_repeated",
     [](GraphBench& b, const CaseSize& s) {
       const ValueId left = Typed(b, s, "left", {s.rows, 3, 1});
       const ValueId right = Typed(b, s, "right", {1, 3, 2 * s.in});
       return DistanceOfExported(
           b, b.Apply(std::make_shared<Combine>(CombineKind::kMultiply), {left, right}));
     }},
    {"reduce_sum",
     [](GraphBench& b, const CaseSize& s) {
       const Shape to = {s.rows, 1, 2 * s.in};
       return DistanceOfExported(b, b.Apply(std::make_shared<ReduceSum>(to, s.dtype), {X(b, s)}));
     }},
    {"concat",
     [](GraphBench& b, const CaseSize& s) {
       return DistanceOfExported(
           b, b.Apply(std::make_shared<Concat>(),
                      {Typed(b, s, "a", {s.rows, 3}), Typed(b, s, "b", {s.rows, s.in}),
                       Typed(b, s, "c", {s.rows, 1})}));
     }},
    {"rearrange_transposed",
     [](GraphBench& b, const CaseSize& s) {
       return RearrangeOf(b, s, {{s.rows, 0}, {2 * s.in, 2}, {3, 1}});
     }},
    {"rearrange_part",
     [](GraphBench& b, const CaseSize& s) {
       return RearrangeOf(b, s, {{s.rows, 0}, {2, 1, 2, -2}, {s.in, 2, 1, 2}});
     }},
    {"rearrange_repeated",
     [](GraphBench& b, const CaseSize& s) {
       return RearrangeOf(b, s, {{s.rows, 0}, {.size = 2}, {3, 1}, {2 * s.in, 2}});
     }},
    {"product", [](GraphBench& b, const CaseSize& s) { return ProductOf(b, s, false, false); }},
    {"product_a_transposed",
     [](GraphBench& b, const CaseSize& s) { return ProductOf(b, s, true, false); }},
    {"product_b_transposed",
     [](GraphBench& b, const CaseSize& s) { return ProductOf(b, s, false, true); }},
    {"product_both_transposed",
     [](GraphBench& b, const CaseSize& s) { return ProductOf(b, s, true, true); }},
    {"affine", [](GraphBench& b,
                  const CaseSize& s) { return NumberOf(b, s, NumberKind::kAffine, -1.5, 0.25); }},
    {"power",
     [](GraphBench& b, const CaseSize& s) { return NumberOf(b, s, NumberKind::kPower, 3); }},
    {"power_of_a_half",
     [](GraphBench& b, const CaseSize& s) {
       return NumberOf(b, s, NumberKind::kPower, -0.5, 0, 2);
     }},
    {"hardsigmoid",
     [](GraphBench& b, const CaseSize& s) {
       return NumberOf(b, s, NumberKind::kHardsigmoid, 0, 0, 3);
     }},
    {"clamp",
     [](GraphBench& b, const CaseSize& s) { return NumberOf(b, s, NumberKind::kClamp, 0, 9); }},
    {"hardtanh",
     [](GraphBench& b, const CaseSize& s) { return NumberOf(b, s, NumberKind::kHardtanh, -9, 0); }},
    {"exp", [](GraphBench& b, const CaseSize& s) { return NumberOf(b, s, NumberKind::kExp); }},
    {"log",
     [](GraphBench& b, const CaseSize& s) { return NumberOf(b, s, NumberKind::kLog, 0, 0, 2); }},
    {"conv_transpose2d",
     [](GraphBench& b, const CaseSize& s) {
       const Conv2dOptions options{.stride = {2, 1}, .padding = {1, 0}};
       const ValueId x = Typed(b, s, "x", {s.rows, 3, 2, 2 * s.in});
       const ValueId weight =
           b.Parameter("weight", {2 * s.in, s.out, 3, 2}, 0.5 / static_cast<double>(s.in));
       return DistanceOfExported(
           b, b.Apply(std::make_shared<ConvTranspose2d>(options, ImagePair{5, 3}), {x, weight}));
     }},
};

}  // namespace

std::span<const GraphCase> ExportedCases() { return kExportedCases; }

}  // namespace gaccd
