#include "daemon/ops/norm/group_norm.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs GroupNorm::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckImages(x, "the input"));
  const std::int64_t channels = x.shape[3];
  if (groups_ < 1 || channels % groups_ != 0) {
    return Status(ErrorKind::kConfig, StrCat("expected groups that divide the ", channels,
                                             " channels, found ", groups_));
  }
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], {channels}, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {channels}, "beta"));
  const ValueSpec statistics{{x.shape[0], groups_}, DType::kF32};
  return std::vector<ValueSpec>{x, statistics, statistics};
}

Status GroupNorm::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1) || scope.HasOutputGradient(2)) {
    return {ErrorKind::kConfig, "group_norm: mean and rstd have no gradient"};
  }
  constexpr std::size_t kInputs[] = {0, 1, 2};
  return scope.SetInputGradients(
      kInputs, std::make_shared<GroupNormGradient>(),
      {scope.OutputGradient(0), scope.input(0), scope.input(1), scope.output(1), scope.output(2)});
}

OutputSpecs GroupNormGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 5));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckImages(x, "the input"));
  const ValueSpec gamma{{x.shape[3]}, DType::kF32};
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient", x.dtype));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], gamma.shape, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[3], "the mean", DType::kF32));
  const Shape& mean = inputs[3].shape;
  if (mean[0] != x.shape[0] || mean[1] < 1 || x.shape[3] % mean[1] != 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("the mean: expected [", x.shape[0], ", groups that divide ", x.shape[3],
                         "], found ", ToString(mean)));
  }
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[4], mean, "rstd"));
  return std::vector<ValueSpec>{x, gamma, gamma};
}

}  // namespace gaccd
