#include "daemon/ops/shape_checks.h"

#include "collectives/base/strings.h"

namespace gaccd {

Status CheckMatrix(const ValueSpec& spec, std::string_view what) {
  if (spec.dtype == DType::kF32 && spec.shape.size() == 2) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(what, ": expected an f32 matrix [rows, columns], found ",
                                     Name(spec.dtype), " ", ToString(spec.shape))};
}

Status CheckShapeIs(const ValueSpec& spec, const Shape& expected, std::string_view what,
                    DType dtype) {
  if (spec.dtype == dtype && spec.shape == expected) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(what, ": expected ", Name(dtype), " ", ToString(expected),
                                     ", found ", Name(spec.dtype), " ", ToString(spec.shape))};
}

}  // namespace gaccd
