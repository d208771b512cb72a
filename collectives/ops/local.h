// The parts of the operations that need no communication. Host memory, f32 or f64.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/base/buffer.h"
#include "collectives/base/result.h"

namespace gaccd::collectives {

// kInternal unless both are host memory of the same type (f32 or f64) and do not overlap.
[[nodiscard]] Status CheckApart(std::string_view operation, const ConstBuffer& in,
                                const MutableBuffer& out);

// kInternal unless `buffer` has `expected` elements. `name`: as in the header of the operation.
[[nodiscard]] Status CheckElements(std::string_view operation, std::string_view name,
                                   std::int64_t expected, std::size_t found);

// out = in. REQUIRES: same size and type, apart.
void Copy(const ConstBuffer& in, const MutableBuffer& out);
void Zero(const MutableBuffer& out);
// data = data / count, each quotient rounded once.
void DivideBy(const MutableBuffer& data, std::int64_t count);
// `count` elements of `buffer` from `first` on.
[[nodiscard]] ConstBuffer Part(const ConstBuffer& buffer, std::int64_t first, std::int64_t count);

}  // namespace gaccd::collectives
