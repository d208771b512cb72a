#include "daemon/ops/product/tile_product_cpu.h"

#include <algorithm>
#include <bit>

#include "collectives/base/simd.h"
#include "daemon/ops/product/tile_product_loop.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

// 6 rows of 16 sums fill the registers of AVX2. In those of AVX-512, 32 columns give enough
// independent sums for the latency of its multiplications.
template <typename Floats>
struct F32Arithmetic {
  using Word = float;
  using Words = Floats;
  using Sums = Floats;
  static constexpr std::int64_t kRows = 6;
  static constexpr std::int64_t kFewRows = 2;
  static constexpr std::int64_t kColumns = (sizeof(Floats) / sizeof(float) / 8) * kTileColumns;

  template <typename Values>
  [[gnu::always_inline]] static void MultiplyAdd(float a, const Values& b, Values* sums) {
    *sums += a * b;
  }
};

struct Bf16Arithmetic {
  using Word = Bf16Pair;
  using Words = Bf16Pair __attribute__((vector_size(64)));
  using Sums = TileFloats;
  static constexpr std::int64_t kRows = 6;
  static constexpr std::int64_t kFewRows = 3;
  static constexpr std::int64_t kColumns = kTileColumns;

  [[gnu::always_inline]] static void MultiplyAdd(Bf16Pair a, const Words& b, TileFloats* sums) {
    *sums += Lower(a) * reinterpret_cast<TileFloats>(b << 16);
    *sums += Upper(a) * reinterpret_cast<TileFloats>(b & kUpper);
  }
  [[gnu::always_inline]] static void MultiplyAdd(Bf16Pair a, Bf16Pair b, float* sum) {
    *sum += Lower(a) * Lower(b);
    *sum += Upper(a) * Upper(b);
  }

 private:
  static constexpr Bf16Pair kUpper = 0xffff0000U;
  static float Lower(Bf16Pair pair) { return std::bit_cast<float>(pair << 16); }
  static float Upper(Bf16Pair pair) { return std::bit_cast<float>(pair & kUpper); }
};

GACCD_SIMD_CLONES
void Bf16Product(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step,
                 float* c, std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k,
                 bool add) {
  TileProductLoop<Bf16Arithmetic>(a, b, b_step, c, c_step, m, n, k, add);
}

GACCD_SIMD_CLONES
void RoundNeighbours(const float* from, std::int64_t pairs, Bf16Pair* to) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < pairs; ++i) to[i] = PackPair<Bf16>(from[2 * i], from[2 * i + 1]);
}

GACCD_SIMD_CLONES
void RoundRows(const float* first, const float* second, std::int64_t pairs, Bf16Pair* to) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < pairs; ++i) to[i] = PackPair<Bf16>(first[i], second[i]);
}

}  // namespace

GACCD_SIMD_CLONES
void TileProduct(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                 std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  if (HasRegistersOf16Floats()) {
    TileProductLoop<F32Arithmetic<TileFloats>>(a, b, b_step, c, c_step, m, n, k, add);
  } else {
    TileProductLoop<F32Arithmetic<HalfTileFloats>>(a, b, b_step, c, c_step, m, n, k, add);
  }
}

GACCD_SIMD_CLONES
void F64TileProduct(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                    std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t first = 0; first < n; first += kTileColumns) {
      const std::int64_t columns = std::min(kTileColumns, n - first);
      float* const to = c + r * c_step + first;
      double sums[kTileColumns] = {};
      if (add) std::copy_n(to, columns, sums);
      for (std::int64_t i = 0; i < k; ++i) {
        const double factor = a.data[r * a.row_step + i * a.k_step];
        const float* const row = b + i * b_step + first;
        for (std::int64_t j = 0; j < columns; ++j) sums[j] += factor * row[j];
      }
      for (std::int64_t j = 0; j < columns; ++j) to[j] = static_cast<float>(sums[j]);
    }
  }
}

const Bf16TileMath& SelectBf16TileMath(CpuBf16 bf16) {
  static constexpr Bf16TileMath kEmulated{&Bf16Product, &RoundNeighbours, &RoundRows};
  const Bf16TileMath* const amx = bf16 == CpuBf16::kAmx ? AmxBf16TileMath() : nullptr;
  if (amx != nullptr) return *amx;
  const bool native = bf16 == CpuBf16::kAvx512Bf16 || bf16 == CpuBf16::kAmx;
  const Bf16TileMath* const avx512 = Avx512Bf16TileMath();
  return native && avx512 != nullptr ? *avx512 : kEmulated;
}

}  // namespace gaccd
