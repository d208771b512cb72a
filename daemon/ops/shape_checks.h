// Checks of function inputs. All errors are kConfig.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "daemon/tensor/shape.h"

namespace gaccd {

Status CheckCount(std::span<const ValueSpec> inputs, std::size_t expected);
// f32, bf16 or fp16.
Status CheckFloat(const ValueSpec& spec, std::string_view what);
// A float matrix [rows, columns]; or a matrix of exactly `dtype`.
Status CheckMatrix(const ValueSpec& spec, std::string_view what);
Status CheckMatrix(const ValueSpec& spec, std::string_view what, DType dtype);
// The same with at least one column.
Status CheckHasColumns(const ValueSpec& spec);
// A matrix of consecutive sequences of `length` rows each.
Status CheckSequences(const ValueSpec& spec, std::int64_t length, std::string_view what);
// Images [N, H, W, C], f32, bf16 or fp16, with at least one pixel and channel.
Status CheckImages(const ValueSpec& spec, std::string_view what);
// Exactly this shape and type.
Status CheckShapeIs(const ValueSpec& spec, const Shape& expected, std::string_view what,
                    DType dtype = DType::kF32);

}  // namespace gaccd
