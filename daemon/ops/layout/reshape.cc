#include "daemon/ops/layout/reshape.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Reshape::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const std::int64_t elements = Elements(inputs[0].shape);
  ValueSpec output{shape_, inputs[0].dtype};
  const auto rest = std::ranges::find(output.shape, kRest);
  if (rest != output.shape.end()) {
    *rest = 1;
    GACCD_RETURN_IF_ERROR(CheckShape(output.shape, output.dtype));
    const std::int64_t known = Elements(output.shape);
    if (known > 0) *rest = elements / known;
  }
  GACCD_RETURN_IF_ERROR(CheckShape(output.shape, output.dtype));
  if (Elements(output.shape) != elements) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected the ", elements, " elements of ", ToString(inputs[0].shape),
                         ", found ", ToString(shape_)));
  }
  return std::vector<ValueSpec>{output};
}

Status Reshape::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Reshape>(scope.input_shape(0)),
                                {scope.OutputGradient(0)});
}

OutputSpecs Detach::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  return std::vector<ValueSpec>{inputs[0]};
}

}  // namespace gaccd
