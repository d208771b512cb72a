// Products of small matrices that lie in the cache, for kernels that compute tile by tile.
#pragma once

#include <cstdint>

namespace gaccd {

// An operand whose element (row, k) is at data[row * row_step + k * k_step]: a matrix or its
// transpose.
struct TileOperand {
  const float* data;
  std::int64_t row_step;
  std::int64_t k_step;
};

// c [m, n] = or += a [m, k] b [k, n]; b and c are row-major with the given distances between rows.
// Each value is one chain of additions over k.
void TileProduct(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                 std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add);

}  // namespace gaccd
