#include "daemon/ops/pointwise/cast.h"

#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Cast::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the input"));
  const ValueSpec output{inputs[0].shape, to_};
  GACCD_RETURN_IF_ERROR(CheckFloat(output, "the output"));
  return std::vector<ValueSpec>{output};
}

Status Cast::Gradient(GradientScope& scope) const {
  const DType from = scope.graph().value(scope.input(0)).spec.dtype;
  return scope.SetInputGradient(0, std::make_shared<Cast>(from), {scope.OutputGradient(0)});
}

}  // namespace gaccd
