// The arithmetic of reductions within one address space.
//
// Floats are added in double, in the order of the inputs, and rounded once at the end: the error of
// a sum over many ranks is half a unit in the last place, whatever their number. Doubles are added
// in double; integers wrap around. Thread-safe for disjoint outputs.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/base/dtype.h"

namespace gaccd {

// out[out_first + i] = sum over inputs of input[in_first + i], 0 <= i < count, for every out.
// An output may be one of the inputs if in_first == out_first. dtype: not kU8; inputs: not empty.
void SumRange(DType dtype, std::span<const void* const> inputs, std::size_t in_first,
              std::span<void* const> outputs, std::size_t out_first, std::size_t count);

// The part of `count` elements that worker `index` of `workers` works on. Parts start on cache
// lines (16 floats), so that two workers never write the same line.
struct Slice {
  std::size_t first = 0;
  std::size_t count = 0;
};
[[nodiscard]] Slice SliceOf(std::size_t count, int index, int workers);

}  // namespace gaccd
