// Predictions as JSON, one line per sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

// {"sample":3,"logits":[0.5,-1.25]}: `key` and the values of one sample with this shape: a number,
// a list, or a list of lists. Numbers are the shortest text that reads back the same. REQUIRES:
// finite values of `dtype` (kF32, kI32), as many as the shape has.
[[nodiscard]] std::string PredictionLine(std::int64_t sample, std::string_view key,
                                         const Shape& shape, DType dtype,
                                         std::span<const std::byte> values);

// {"sample":3,"class":1,"name":"dog"}: without a name if names[number] is not known.
[[nodiscard]] std::string ClassLine(std::int64_t sample, std::int32_t number,
                                    std::span<const std::string> names);

}  // namespace gaccd
