// The checks that several functions make of their inputs. All errors are kConfig.
#pragma once

#include <string_view>

#include "daemon/tensor/shape.h"

namespace gaccd {

// f32 or bf16.
Status CheckFloat(const ValueSpec& spec, std::string_view what);
// A float matrix [rows, columns], f32 or bf16.
Status CheckMatrix(const ValueSpec& spec, std::string_view what);
// Exactly this shape, f32 unless another type is given.
Status CheckShapeIs(const ValueSpec& spec, const Shape& expected, std::string_view what,
                    DType dtype = DType::kF32);

}  // namespace gaccd
