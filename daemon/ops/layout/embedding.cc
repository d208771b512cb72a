#include "daemon/ops/layout/embedding.h"

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckIds(const ValueSpec& ids) {
  const std::size_t dimensions = ids.shape.size();
  if (ids.dtype == DType::kI32 && (dimensions == 1 || dimensions == 2)) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("the ids: expected i32 [rows] or [sequences, length], found ",
                                     Name(ids.dtype), " ", ToString(ids.shape))};
}

Status CheckTable(const ValueSpec& table) { return CheckMatrix(table, "the table", DType::kF32); }

}  // namespace

OutputSpecs Embedding::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckIds(inputs[0]));
  GACCD_RETURN_IF_ERROR(CheckTable(inputs[1]));
  const ValueSpec output{{Elements(inputs[0].shape), inputs[1].shape[1]}, dtype_};
  GACCD_RETURN_IF_ERROR(CheckFloat(output, "the output"));
  return std::vector<ValueSpec>{output};
}

Status Embedding::Gradient(GradientScope& scope) const {
  if (!scope.NeedsGradient(1)) return Status::Ok();
  ValueId ids = scope.input(0);
  if (padding_ >= 0) {
    GACCD_ASSIGN_OR_RETURN(
        const std::vector<ValueId> without,
        scope.graph().Apply(std::make_shared<IdFunction>(IdFunctionKind::kSkipId, padding_),
                            {ids}));
    ids = without[0];
  }
  return scope.SetInputGradient(1, std::make_shared<EmbeddingGradient>(scope.input_shape(1)[0]),
                                {scope.OutputGradient(0), ids});
}

OutputSpecs EmbeddingGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckMatrix(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckIds(inputs[1]));
  const std::int64_t columns = inputs[0].shape[1];
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], {Elements(inputs[1].shape), columns},
                                     "the gradient", inputs[0].dtype));
  return std::vector<ValueSpec>{{{rows_, columns}, DType::kF32}};
}

OutputSpecs AddPositions::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckSequences(inputs[0], length_, "the input"));
  GACCD_RETURN_IF_ERROR(CheckTable(inputs[1]));
  const Shape& table = inputs[1].shape;
  if (table[0] < length_ || table[1] != inputs[0].shape[1]) {
    return Status(ErrorKind::kConfig, StrCat("the table: expected at least ", length_, " rows of ",
                                             inputs[0].shape[1], ", found ", ToString(table)));
  }
  return std::vector<ValueSpec>{inputs[0]};
}

Status AddPositions::Gradient(GradientScope& scope) const {
  const ValueId dy = scope.OutputGradient(0);
  if (scope.NeedsGradient(0))
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(0, std::make_shared<Identity>(), {dy}));
  if (!scope.NeedsGradient(1)) return Status::Ok();
  return scope.SetInputGradient(
      1, std::make_shared<PositionsGradient>(length_, scope.input_shape(1)[0]), {dy});
}

OutputSpecs PositionsGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckSequences(inputs[0], length_, "the gradient"));
  return std::vector<ValueSpec>{{{rows_, inputs[0].shape[1]}, DType::kF32}};
}

}  // namespace gaccd
