#include "daemon/ops/image/conv_transpose2d.h"

namespace gaccd {

Status ConvTranspose2d::Gradient(GradientScope& scope) const {
  const ValueId dy = scope.OutputGradient(0);
  const Shape weight = scope.input_shape(1);
  if (scope.NeedsGradient(0)) {
    GACCD_RETURN_IF_ERROR(
        scope.SetInputGradient(0, std::make_shared<Conv2d>(options()), {dy, scope.input(1)}));
  }
  return scope.SetInputGradient(
      1, std::make_shared<Conv2dWeightGradient>(options(), KernelOf(weight), weight.size() == 3),
      {scope.input(0), dy});
}

}  // namespace gaccd
