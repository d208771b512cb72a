#include "daemon/ops/multiply.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

Result<std::vector<ValueSpec>> Multiply::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  if (inputs[0].dtype != DType::kF32 && inputs[0].dtype != DType::kF64) {
    return Status(ErrorKind::kConfig, StrCat("expected f32 or f64, found ", Name(inputs[0].dtype)));
  }
  return std::vector<ValueSpec>{inputs[0]};
}

Status Multiply::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Multiply>(factor_), {scope.OutputGradient(0)});
}

}  // namespace gaccd
