// Packing of a transposed weight into blocks of 16 x 64, which oneDNN does too slowly: on one
// AVX-512 core, [512, 784] takes 99 us with oneDNN's reorder, 31 us here. It is done once per
// update, so it determines from how many micro-steps on packing pays off.
#pragma once

#include <cstdint>

namespace gaccd {

// weight [n, k], row-major, n a multiple of 64 and k of 16. packed is oneDNN's layout BA16a64b of
// the matrix [k, n]: element (i, j) at ((j / 64) * (k / 16) + i / 16) * 1024 + (i % 16) * 64 + j
// % 64.
void PackTransposed(const float* weight, std::int64_t n, std::int64_t k, float* packed);

}  // namespace gaccd
