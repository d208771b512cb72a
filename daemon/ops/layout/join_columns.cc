#include "daemon/ops/layout/join_columns.h"

#include <array>

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs JoinColumns::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the first input", DType::kF32));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[1], "the second input", DType::kF32));
  const Shape& a = inputs[0].shape;
  const Shape& b = inputs[1].shape;
  if (a[0] != b[0]) {
    return Status(ErrorKind::kConfig, StrCat("expected matrices of as many rows, found ",
                                             ToString(a), " and ", ToString(b)));
  }
  return std::vector<ValueSpec>{{{a[0], a[1] + b[1]}, DType::kF32}};
}

Status JoinColumns::Gradient(GradientScope& scope) const {
  constexpr std::array<std::size_t, 2> kBoth = {0, 1};
  return scope.SetInputGradients(kBoth,
                                 std::make_shared<JoinColumnsGradient>(scope.input_shape(0)[1]),
                                 {scope.OutputGradient(0)});
}

OutputSpecs JoinColumnsGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the gradient", DType::kF32));
  const Shape& dy = inputs[0].shape;
  if (dy[1] < first_) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected at least ", first_, " columns, found ", ToString(dy)));
  }
  return std::vector<ValueSpec>{{{dy[0], first_}, DType::kF32},
                                {{dy[0], dy[1] - first_}, DType::kF32}};
}

}  // namespace gaccd
