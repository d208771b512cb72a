// Compiled for AVX512_BF16, so it must not contain inline functions shared with other files: the
// linker keeps only one copy.
#include "daemon/ops/product/tile_product_cpu.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include "daemon/ops/product/tile_product_loop.h"

namespace gaccd {
namespace {

struct Avx512Arithmetic {
  using Word = Bf16Pair;
  using Words = __m512i;
  using Sums = TileFloats;
  static constexpr std::int64_t kRows = 8;  // the latency of the instruction is six cycles
  static constexpr std::int64_t kFewRows = 4;
  static constexpr std::int64_t kColumns = kTileColumns;

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

void Product(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step, float* c,
             std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  TileProductLoop<Avx512Arithmetic>(a, b, b_step, c, c_step, m, n, k, add);
}

constexpr std::int64_t kLanes = 16;

// Mask of the first `count` lanes, up to 16.
__mmask16 FirstLanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= kLanes ? 0xffff : (1 << count) - 1);
}

void RoundNeighbours(const float* from, std::int64_t pairs, Bf16Pair* to) {
  for (std::int64_t i = 0; i < pairs; i += kLanes) {
    const std::int64_t values = 2 * (pairs - i);
    const __m512 low = _mm512_maskz_loadu_ps(FirstLanes(values), from + 2 * i);
    const __m512 high =
        values > kLanes ? _mm512_maskz_loadu_ps(FirstLanes(values - kLanes), from + 2 * i + kLanes)
                        : _mm512_setzero_ps();
    _mm512_mask_storeu_epi32(to + i, FirstLanes(pairs - i),
                             reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
}

void RoundRows(const float* first, const float* second, std::int64_t pairs, Bf16Pair* to) {
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  // Half 2 i is element i of the lower sixteen, half 2 i + 1 of the upper sixteen.
  const __m512i halves =
      _mm512_or_si512(lanes, _mm512_slli_epi32(_mm512_add_epi32(lanes, _mm512_set1_epi32(16)), 16));
  for (std::int64_t i = 0; i < pairs; i += kLanes) {
    const __mmask16 mask = FirstLanes(pairs - i);
    const __m512bh rounded = _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(mask, second + i),
                                                 _mm512_maskz_loadu_ps(mask, first + i));
    _mm512_mask_storeu_epi32(to + i, mask,
                             _mm512_permutexvar_epi16(halves, reinterpret_cast<__m512i>(rounded)));
  }
}

constexpr Bf16TileMath kMath{&Product, &RoundNeighbours, &RoundRows};

}  // namespace

const Bf16TileMath* Avx512Bf16TileMath() { return &kMath; }

}  // namespace gaccd

#else

const gaccd::Bf16TileMath* gaccd::Avx512Bf16TileMath() { return nullptr; }

#endif
