// Packing of a weight into oneDNN's blocked layouts, which oneDNN does too slowly: on one AVX-512
// core, [512, 784] takes 99 us with oneDNN's reorder, 31 us here. It is done once per update, so it
// determines from how many micro-steps on packing pays off.
#pragma once

#include <cstdint>

namespace gaccd {

// weight [n, k], row-major, n a multiple of 64 and k of 16. packed is oneDNN's layout BA16a64b of
// the matrix [k, n]: element (i, j) at ((j / 64) * (k / 16) + i / 16) * 1024 + (i % 16) * 64 + j
// % 64.
void PackTransposed(const float* weight, std::int64_t n, std::int64_t k, float* packed);

// For bf16 products, with rounding to nearest, ties to even: packs the matrix B [k, n], n a
// multiple of 64 and k of 16; f32, row-major, or stored as its transpose [n, k]. packed is oneDNN's
// layout BA16a64b2a: with K = k rounded up to 32, element (i, j) at ((j / 64) * (K / 32) + i / 32)
// * 2048 + (i % 32 / 2) * 128 + (j % 64) * 2 + i % 2; rows from k on are 0. Packs only rows [first,
// last) of the weight as stored; first is a multiple of 64, as is last, unless it is the end.
void PackBf16(const float* weight, bool transposed, std::int64_t k, std::int64_t n,
              std::int64_t first, std::int64_t last, std::uint16_t* packed);

}  // namespace gaccd
