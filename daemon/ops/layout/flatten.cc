#include "daemon/ops/layout/flatten.h"

#include "collectives/base/strings.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
OutputSpecs Flatten::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const Shape& shape = inputs[0].shape;
  if (shape.empty()) {
    return Status(ErrorKind::kConfig, "expected a batch dimension, found a scalar");
  }
  const std::int64_t width = Elements(Shape(shape.begin() + 1, shape.end()));
  return std::vector<ValueSpec>{{{shape[0], width}, inputs[0].dtype}};
}

Status Flatten::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Reshape>(scope.input_shape(0)),
                                {scope.OutputGradient(0)});
}

}  // namespace gaccd
