#include "daemon/ops/tile_product_cpu.h"

#include <cstring>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

// 16 floats side by side: one, two or four registers. 6 rows of them fill the registers of AVX2.
using Floats = float __attribute__((vector_size(64)));
constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kRows = 6;

// Always inline: a function of its own would be compiled for the baseline.
template <std::int64_t kBlock>
[[gnu::always_inline]] inline void Block(const TileOperand& a, const float* b, std::int64_t b_step,
                                         float* c, std::int64_t c_step, std::int64_t k, bool add) {
  Floats sums[kBlock] = {};
  if (add) {
    for (std::int64_t r = 0; r < kBlock; ++r) std::memcpy(&sums[r], c + r * c_step, sizeof(Floats));
  }
  for (std::int64_t i = 0; i < k; ++i) {
    Floats row;
    std::memcpy(&row, b + i * b_step, sizeof(Floats));
    for (std::int64_t r = 0; r < kBlock; ++r) {
      sums[r] += a.data[r * a.row_step + i * a.k_step] * row;
    }
  }
  for (std::int64_t r = 0; r < kBlock; ++r) std::memcpy(c + r * c_step, &sums[r], sizeof(Floats));
}

}  // namespace

GACCD_SIMD_CLONES
void TileProduct(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                 std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  const std::int64_t whole = n / kWidth * kWidth;
  std::int64_t first = 0;
  for (; first + kRows <= m; first += kRows) {
    const TileOperand rows{a.data + first * a.row_step, a.row_step, a.k_step};
    for (std::int64_t j = 0; j < whole; j += kWidth) {
      Block<kRows>(rows, b + j, b_step, c + first * c_step + j, c_step, k, add);
    }
  }
  for (; first < m; ++first) {
    const TileOperand row{a.data + first * a.row_step, a.row_step, a.k_step};
    for (std::int64_t j = 0; j < whole; j += kWidth) {
      Block<1>(row, b + j, b_step, c + first * c_step + j, c_step, k, add);
    }
  }
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t j = whole; j < n; ++j) {
      float sum = add ? c[r * c_step + j] : 0.0F;
      for (std::int64_t i = 0; i < k; ++i) {
        sum += a.data[r * a.row_step + i * a.k_step] * b[i * b_step + j];
      }
      c[r * c_step + j] = sum;
    }
  }
}

}  // namespace gaccd
