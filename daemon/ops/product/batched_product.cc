#include "daemon/ops/product/batched_product.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs BatchedProduct::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the first input"));
  const Shape& a = inputs[0].shape;
  const Shape& b = inputs[1].shape;
  const bool fits = inputs[0].dtype == inputs[1].dtype && a.size() == 3 && b.size() == 3 &&
                    a[0] == b[0] && a[transpose_a_ ? 1 : 2] == b[transpose_b_ ? 2 : 1] &&
                    a[1] > 0 && a[2] > 0 && b[1] > 0 && b[2] > 0;
  if (!fits) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected as many matrices of one type that can be multiplied, found ",
                         Name(inputs[0].dtype), " ", ToString(a), transpose_a_ ? "^T" : "", " and ",
                         Name(inputs[1].dtype), " ", ToString(b), transpose_b_ ? "^T" : ""));
  }
  return std::vector<ValueSpec>{
      {{a[0], a[transpose_a_ ? 2 : 1], b[transpose_b_ ? 1 : 2]}, inputs[0].dtype}};
}

double BatchedProduct::ProductFlops(std::span<const ValueSpec> inputs) const {
  const Shape& b = inputs[1].shape;
  return 2.0 * static_cast<double>(Elements(inputs[0].shape)) *
         static_cast<double>(b[transpose_b_ ? 1 : 2]);
}

Status BatchedProduct::Gradient(GradientScope& scope) const {
  const ValueId dy = scope.OutputGradient(0);
  const auto set = [&](std::size_t i, ValueId left, bool transpose_left, ValueId right,
                       bool transpose_right) -> Status {
    if (!scope.NeedsGradient(i)) return Status::Ok();
    return scope.SetInputGradient(
        i, std::make_shared<BatchedProduct>(transpose_left, transpose_right), {left, right});
  };
  const ValueId a = scope.input(0);
  const ValueId b = scope.input(1);
  GACCD_RETURN_IF_ERROR(transpose_a_ ? set(0, b, transpose_b_, dy, true)
                                     : set(0, dy, false, b, !transpose_b_));
  return transpose_b_ ? set(1, dy, true, a, transpose_a_) : set(1, a, !transpose_a_, dy, false);
}

}  // namespace gaccd
