// Compiled for AVX512_BF16, so it must not hold inline functions that others have, too: the linker
// keeps one of them.
#include "daemon/ops/tile_product_cpu.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include "daemon/ops/tile_product_loop.h"

namespace gaccd {
namespace {

struct Avx512Arithmetic {
  using Word = Bf16Pair;
  using Words = __m512i;
  static constexpr std::int64_t kRows = 8;  // an instruction takes six cycles

  [[gnu::always_inline]] static void MultiplyAdd(Bf16Pair a, const Words& b, TileFloats* sums) {
    *sums =
        _mm512_dpbf16_ps(*sums, reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a))),
                         reinterpret_cast<__m512bh>(b));
  }
  [[gnu::always_inline]] static void MultiplyAdd(Bf16Pair a, Bf16Pair b, float* sum) {
    __m512 sums = _mm512_set1_ps(*sum);
    sums =
        _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a))),
                         reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(b))));
    *sum = _mm512_cvtss_f32(sums);
  }
};

void Product(const TileOperandOf<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step, float* c,
             std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  TileProductLoop<Avx512Arithmetic>(a, b, b_step, c, c_step, m, n, k, add);
}

}  // namespace

Bf16TileProduct Avx512Bf16TileProduct() { return &Product; }

}  // namespace gaccd

#else

gaccd::Bf16TileProduct gaccd::Avx512Bf16TileProduct() { return nullptr; }

#endif
