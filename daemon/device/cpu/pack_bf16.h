// Packing of a weight for bf16 products, with rounding to nearest, ties to even.
#pragma once

#include <cstdint>

namespace gaccd {

// Packs the matrix B [k, n] of a product, n a multiple of 64 and k of 16; f32, row-major, or stored
// as its transpose [n, k]. packed is oneDNN's layout BA16a64b2a: with K = k rounded up to 32,
// element (i, j) at ((j / 64) * (K / 32) + i / 32) * 2048 + (i % 32 / 2) * 128 + (j % 64) * 2 + i %
// 2; rows from k on are 0. Packs only rows [first, last) of the weight as stored; first is a
// multiple of 64, as is last, unless it is the end.
void PackBf16(const float* weight, bool transposed, std::int64_t k, std::int64_t n,
              std::int64_t first, std::int64_t last, std::uint16_t* packed);

}  // namespace gaccd
