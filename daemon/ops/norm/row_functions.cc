#include "daemon/ops/norm/row_functions.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckRows(const ValueSpec& x, std::string_view what) {
  GACCD_RETURN_IF_ERROR(CheckMatrix(x, what));
  if (x.shape[1] > 0) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat(what, ": expected at least 1 column, found ", ToString(x.shape))};
}

Status CheckGradient(std::span<const ValueSpec> inputs, std::size_t count) {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, count));
  GACCD_RETURN_IF_ERROR(CheckRows(inputs[0], "the gradient"));
  return CheckShapeIs(inputs[1], inputs[0].shape, "the output", inputs[0].dtype);
}

}  // namespace

OutputSpecs Softmax::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckRows(inputs[0], "the input"));
  return std::vector<ValueSpec>{inputs[0]};
}

Status Softmax::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<SoftmaxGradient>(),
                                {scope.OutputGradient(0), scope.output(0)});
}

OutputSpecs SoftmaxGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckGradient(inputs, 2));
  return std::vector<ValueSpec>{inputs[0]};
}

OutputSpecs L2Normalize::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckRows(inputs[0], "the input"));
  if (!(eps_ > 0)) {
    return Status(ErrorKind::kConfig, StrCat("eps: expected a value above 0, found ", eps_));
  }
  return std::vector<ValueSpec>{inputs[0], {{inputs[0].shape[0]}, DType::kF32}};
}

Status L2Normalize::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1)) {
    return {ErrorKind::kConfig, "l2_normalize: the norm has no gradient"};
  }
  return scope.SetInputGradient(0, std::make_shared<L2NormalizeGradient>(eps_),
                                {scope.OutputGradient(0), scope.output(0), scope.output(1)});
}

OutputSpecs L2NormalizeGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckGradient(inputs, 3));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {inputs[0].shape[0]}, "the norm"));
  return std::vector<ValueSpec>{inputs[0]};
}

}  // namespace gaccd
