// Products of small matrices that fit into the cache, for kernels that compute tile by tile.
#pragma once

#include <cstdint>

#include "daemon/device/cpu/onednn.h"

namespace gaccd {

// An operand whose element (row, k) is data[row * row_step + k * k_step]: a matrix or its
// transpose.
template <typename Word>
struct BasicTileOperand {
  const Word* data;
  std::int64_t row_step;
  std::int64_t k_step;
};
using TileOperand = BasicTileOperand<float>;

// Columns computed at once, in one, two or four registers.
inline constexpr std::int64_t kTileColumns = 16;

// c [m, n] = or += a [m, k] b [k, n]; b and c are row-major with the given distances between rows.
// Each value is one chain of additions over k.
void TileProduct(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                 std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add);

// The same with f64 sums, rounded once at the end.
void F64TileProduct(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                    std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add);

// Two consecutive bf16 values in k, the first one in the lower half.
using Bf16Pair = std::uint32_t;

// The same for bf16 matrices, with f32 sums: elements of a and b are pairs, and k and its steps
// count pairs.
using Bf16TileProduct = void (*)(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b,
                                 std::int64_t b_step, float* c, std::int64_t c_step, std::int64_t m,
                                 std::int64_t n, std::int64_t k, bool add);

// bf16 products, and the rounding (to nearest, ties to even) of their operands.
struct Bf16TileMath {
  Bf16TileProduct product;
  // to[i] = the pair from[2 i], from[2 i + 1]
  void (*round_neighbours)(const float* from, std::int64_t pairs, Bf16Pair* to);
  // to[i] = the pair first[i], second[i]
  void (*round_rows)(const float* first, const float* second, std::int64_t pairs, Bf16Pair* to);
};

// Uses AMX or AVX512_BF16 if the CPU supports it (which treat denormal numbers as 0), otherwise f32
// products.
[[nodiscard]] const Bf16TileMath& SelectBf16TileMath(CpuBf16 bf16);

// Null if this program was not compiled for x86-64; AMX also if the kernel does not permit it.
[[nodiscard]] const Bf16TileMath* Avx512Bf16TileMath();
[[nodiscard]] const Bf16TileMath* AmxBf16TileMath();

}  // namespace gaccd
