#include "daemon/ops/layer_norm.h"

#include "collectives/base/strings.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckRows(const ValueSpec& x) {
  GACCD_RETURN_IF_ERROR(CheckMatrix(x, "the input"));
  if (x.shape[1] > 0) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the input: expected at least 1 column, found ", ToString(x.shape))};
}

Status CheckStatistics(const ValueSpec& mean, const ValueSpec& rstd, const ValueSpec& x) {
  GACCD_RETURN_IF_ERROR(CheckShapeIs(mean, {x.shape[0]}, "the mean"));
  return CheckShapeIs(rstd, {x.shape[0]}, "rstd");
}

}  // namespace

Result<std::vector<ValueSpec>> LayerNorm::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckRows(x));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], {x.shape[1]}, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {x.shape[1]}, "beta"));
  const ValueSpec statistics{{x.shape[0]}, DType::kF32};
  return std::vector<ValueSpec>{x, statistics, statistics};
}

Status LayerNorm::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1) || scope.HasOutputGradient(2)) {
    return {ErrorKind::kConfig, "layer_norm: mean and rstd have no gradient"};
  }
  const ValueId dy = scope.OutputGradient(0);
  const ValueId x = scope.input(0);
  const ValueId mean = scope.output(1);
  const ValueId rstd = scope.output(2);
  if (scope.NeedsGradient(0)) {
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(0, std::make_shared<LayerNormInputGradient>(),
                                                 {dy, x, scope.input(1), mean, rstd}));
  }
  if (scope.NeedsGradient(1)) {
    GACCD_RETURN_IF_ERROR(
        scope.SetInputGradient(1, std::make_shared<LayerNormScaleGradient>(), {dy, x, mean, rstd}));
  }
  if (!scope.NeedsGradient(2)) return Status::Ok();
  return scope.SetInputGradient(2, std::make_shared<BiasGradient>(), {dy});
}

Result<std::vector<ValueSpec>> LayerNormInputGradient::Infer(
    std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 5));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckRows(x));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient", x.dtype));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {x.shape[1]}, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckStatistics(inputs[3], inputs[4], x));
  return std::vector<ValueSpec>{x};
}

Result<std::vector<ValueSpec>> LayerNormScaleGradient::Infer(
    std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 4));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckRows(x));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient", x.dtype));
  GACCD_RETURN_IF_ERROR(CheckStatistics(inputs[2], inputs[3], x));
  return std::vector<ValueSpec>{{{x.shape[1]}, DType::kF32}};
}

}  // namespace gaccd
