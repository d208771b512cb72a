#include "daemon/ops/shape_checks.h"

#include "collectives/base/strings.h"

namespace gaccd {
Status CheckCount(std::span<const ValueSpec> inputs, std::size_t expected) {
  if (inputs.size() == expected) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("expected ", expected, " inputs, found ", inputs.size())};
}

Status CheckFloat(const ValueSpec& spec, std::string_view what) {
  if (IsFloat(spec.dtype)) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(what, ": expected f32, bf16 or fp16, found ", Name(spec.dtype),
                                     " ", ToString(spec.shape))};
}

Status CheckMatrix(const ValueSpec& spec, std::string_view what) {
  if (IsFloat(spec.dtype) && spec.shape.size() == 2) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat(what, ": expected an f32, bf16 or fp16 matrix [rows, columns], found ",
                 Name(spec.dtype), " ", ToString(spec.shape))};
}

Status CheckMatrix(const ValueSpec& spec, std::string_view what, DType dtype) {
  if (spec.dtype == dtype && spec.shape.size() == 2) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(what, ": expected a matrix [rows, columns] of ", Name(dtype),
                                     ", found ", Name(spec.dtype), " ", ToString(spec.shape))};
}

Status CheckHasColumns(const ValueSpec& spec) {
  GACCD_RETURN_IF_ERROR(CheckMatrix(spec, "the input"));
  if (spec.shape[1] > 0) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the input: expected at least 1 column, found ", ToString(spec.shape))};
}

Status CheckSequences(const ValueSpec& spec, std::int64_t length, std::string_view what) {
  GACCD_RETURN_IF_ERROR(CheckMatrix(spec, what));
  if (length > 0 && spec.shape[0] % length == 0) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(what, ": expected the rows of sequences of ", length,
                                     " each, found ", ToString(spec.shape))};
}

Status CheckImages(const ValueSpec& spec, std::string_view what) {
  const Shape& shape = spec.shape;
  if (IsFloat(spec.dtype) && shape.size() == 4 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0) {
    return Status::Ok();
  }
  return {ErrorKind::kConfig,
          StrCat(what, ": expected f32, bf16 or fp16 images [N, height, width, channels], found ",
                 Name(spec.dtype), " ", ToString(shape))};
}

Status CheckShapeIs(const ValueSpec& spec, const Shape& expected, std::string_view what,
                    DType dtype) {
  if (spec.dtype == dtype && spec.shape == expected) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(what, ": expected ", Name(dtype), " ", ToString(expected),
                                     ", found ", Name(spec.dtype), " ", ToString(spec.shape))};
}

}  // namespace gaccd
