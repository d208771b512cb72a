#include "daemon/autograd/add.h"

#include "collectives/base/strings.h"

namespace gaccd {

OutputSpecs Add::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.size() != 2) {
    return Status(ErrorKind::kConfig, StrCat("expected 2 inputs, found ", inputs.size()));
  }
  if (inputs[0] != inputs[1] || !IsFloat(inputs[0].dtype)) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected two inputs of one shape, both f32, bf16 or fp16, found ",
                         Name(inputs[0].dtype), " ", ToString(inputs[0].shape), " and ",
                         Name(inputs[1].dtype), " ", ToString(inputs[1].shape)));
  }
  return std::vector<ValueSpec>{inputs[0]};
}

Status Add::Gradient(GradientScope& scope) const {
  for (std::size_t i = 0; i < 2; ++i) {
    if (!scope.NeedsGradient(i)) continue;
    GACCD_RETURN_IF_ERROR(
        scope.SetInputGradient(i, std::make_shared<Identity>(), {scope.OutputGradient(0)}));
  }
  return Status::Ok();
}

OutputSpecs Accumulate::Infer(std::span<const ValueSpec> inputs) const {
  return std::vector<ValueSpec>{{inputs[0].shape, DType::kF32}};
}

}  // namespace gaccd
