#include "daemon/ops/mean_squared_error.h"

#include "daemon/ops/fuse.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs MeanSquaredError::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the prediction"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the target"));
  return std::vector<ValueSpec>{{{1}, DType::kF64}};
}

Status MeanSquaredError::Gradient(GradientScope& scope) const {
  if (scope.NeedsGradient(1)) {
    return {ErrorKind::kConfig,
            "mean_squared_error: the target has no gradient, found a value "
            "that needs one"};
  }
  return scope.SetInputGradient(0, std::make_shared<MeanSquaredErrorGradient>(),
                                {scope.input(0), scope.input(1), scope.OutputGradient(0)});
}

OutputSpecs MeanSquaredErrorGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the prediction"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the target"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {1}, "the loss gradient"));
  return std::vector<ValueSpec>{inputs[0]};
}

OutputSpecs MeanSquaredErrorFused::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs, MeanSquaredErrorGradient().Infer(inputs));
  outputs.push_back({{1}, DType::kF64});
  return outputs;
}

void FuseMeanSquaredError(Fuser& fuser) {
  fuser.FuseLoss<MeanSquaredError, MeanSquaredErrorGradient, MeanSquaredErrorFused>();
}

}  // namespace gaccd
