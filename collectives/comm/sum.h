// Sums within one address space: of ranks that are threads, and of the ranks of one node in shared
// memory.
//
// The order is always ((input 0 + input 1) + input 2) + ..., in the type of the elements, whichever
// rank computes and however the elements are divided, so results are bit-identical everywhere and
// in every run. Integers wrap around. bf16 is added in f32 and rounded once, to nearest even.
// Thread-safe for disjoint outputs; the caller synchronises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// out[out_first + i] = sum over inputs of input[in_first + i], 0 <= i < count, for every out. An
// output may alias those elements of an input. REQUIRES: inputs is not empty. kInternal, without
// writing: u8, fp16.
Status SumRange(DType dtype, std::span<const void* const> inputs, std::size_t in_first,
                std::span<void* const> outputs, std::size_t out_first, std::size_t count);

// bf16 is the upper half of a float. REQUIRES: both sides have the same number of values.
void WidenBf16(std::span<const std::uint16_t> in, std::span<float> out);
void NarrowBf16(std::span<const float> in, std::span<std::uint16_t> out);  // rounds to nearest even

// The part of `count` elements for worker `index` of `workers`. Parts start on cache lines (16
// floats), so that two workers never write to the same line.
struct Slice {
  std::size_t first = 0;
  std::size_t count = 0;
};
[[nodiscard]] Slice WorkerSlice(std::size_t count, int index, int workers);

}  // namespace gaccd
