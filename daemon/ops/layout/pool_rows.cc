#include "daemon/ops/layout/pool_rows.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckInputs(PoolKind kind, std::int64_t length, std::span<const ValueSpec> inputs,
                   std::int64_t sequences) {
  if (length < 1) {
    return {ErrorKind::kConfig, StrCat("expected a length of at least 1, found ", length)};
  }
  if (kind == PoolKind::kFirst) return CheckCount(inputs, 1);
  if (inputs.size() == 1) return Status::Ok();
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  return CheckShapeIs(inputs[1], {sequences}, "the lengths", DType::kI32);
}

}  // namespace

OutputSpecs PoolRows::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.empty()) return Status(ErrorKind::kConfig, "expected an input, found none");
  GACCD_RETURN_IF_ERROR(CheckSequences(inputs[0], length_, "the input"));
  const std::int64_t sequences = inputs[0].shape[0] / length_;
  GACCD_RETURN_IF_ERROR(CheckInputs(kind_, length_, inputs, sequences));
  return std::vector<ValueSpec>{{{sequences, inputs[0].shape[1]}, inputs[0].dtype}};
}

Status PoolRows::Gradient(GradientScope& scope) const {
  std::vector<ValueId> inputs = {scope.OutputGradient(0)};
  if (scope.inputs() == 2) inputs.push_back(scope.input(1));
  return scope.SetInputGradient(0, std::make_shared<PoolRowsGradient>(kind_, length_),
                                std::move(inputs));
}

OutputSpecs PoolRowsGradient::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.empty()) return Status(ErrorKind::kConfig, "expected an input, found none");
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the gradient"));
  const Shape& dy = inputs[0].shape;
  GACCD_RETURN_IF_ERROR(CheckInputs(kind_, length_, inputs, dy[0]));
  return std::vector<ValueSpec>{{{dy[0] * length_, dy[1]}, inputs[0].dtype}};
}

}  // namespace gaccd
