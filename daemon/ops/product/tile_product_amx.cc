// Compiled for AMX, so it must not contain inline functions shared with other files: the linker
// keeps only one copy.
#include "daemon/ops/product/tile_product_cpu.h"

#if defined(__AMX_BF16__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gaccd {
namespace {

// A tile register holds 16 rows of 16 words. Registers 0 to 3 hold sums of 16 rows, 4 their left
// operand, 5 the right one; 6 and 7 hold sums and left operand of 8 rows.
constexpr std::int64_t kTile = 16;
constexpr std::int64_t kHalf = 8;
constexpr std::int64_t kMaxTiles = 4;

// kDepth: words of k in a left and a right operand, kTile or kHalf.
template <std::uint8_t kDepth>
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t reserved[15] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 4 * kDepth, 64, 64, 4 * kDepth};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, kDepth, kHalf, kHalf};
};

// to[r][i] = from[i][r] for 16 x 16 words; those from `rows` or `depth` on are 0.
void Transpose(const Bf16Pair* from, std::int64_t step, std::int64_t rows, std::int64_t depth,
               Bf16Pair* to) {
  const auto mask = static_cast<__mmask16>((1U << rows) - 1);
  __m512i a[kTile] = {};
  __m512i b[kTile];
  for (int i = 0; i < depth; ++i) a[i] = _mm512_maskz_loadu_epi32(mask, from + i * step);
  for (int i = 0; i < kTile; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < kTile; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  constexpr int kEven = 0x88;
  constexpr int kOdd = 0xdd;
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], kEven);
    b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], kOdd);
    b[i + 8] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], kEven);
    b[i + 12] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], kOdd);
  }
  for (int i = 0; i < 8; ++i) {
    _mm512_store_si512(to + i * kTile, _mm512_shuffle_i32x4(b[i], b[i + 8], kEven));
    _mm512_store_si512(to + (i + 8) * kTile, _mm512_shuffle_i32x4(b[i], b[i + 8], kOdd));
  }
}

// The left operand of rows [0, rows) and the words [k, k + depth): its memory, or its transpose.
BasicTileOperand<Bf16Pair> LeftTile(const BasicTileOperand<Bf16Pair>& a, std::int64_t k,
                                    std::int64_t rows, std::int64_t depth, Bf16Pair* memory) {
  if (a.k_step == 1) return {a.data + k, a.row_step, 1};
  Transpose(a.data + k * a.k_step, a.k_step, rows, depth, memory);
  __asm__ volatile("" ::: "memory");  // gcc 12 does not know that _tile_loadd reads memory
  return {memory, kTile, 1};
}

// 16 rows and kTiles times 16 columns of c; k is a multiple of kDepth. The intrinsics need
// literals.
template <std::uint8_t kDepth, int kTiles>
void Block(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step, float* c,
           std::int64_t c_step, std::int64_t k, bool add) {
  alignas(64) Bf16Pair memory[kTile * kTile];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if (add) {
    _tile_loadd(0, c, c_step * 4);
    if constexpr (kTiles > 1) _tile_loadd(1, c + kTile, c_step * 4);
    if constexpr (kTiles > 2) _tile_loadd(2, c + 2 * kTile, c_step * 4);
    if constexpr (kTiles > 3) _tile_loadd(3, c + 3 * kTile, c_step * 4);
  }
  for (std::int64_t i = 0; i < k; i += kDepth, b += kDepth * b_step) {
    const auto left = LeftTile(a, i, kTile, kDepth, memory);
    _tile_loadd(4, left.data, left.row_step * 4);
    _tile_loadd(5, b, b_step * 4);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kTiles > 1) {
      _tile_loadd(5, b + kTile, b_step * 4);
      _tile_dpbf16ps(1, 4, 5);
    }
    if constexpr (kTiles > 2) {
      _tile_loadd(5, b + 2 * kTile, b_step * 4);
      _tile_dpbf16ps(2, 4, 5);
    }
    if constexpr (kTiles > 3) {
      _tile_loadd(5, b + 3 * kTile, b_step * 4);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  _tile_stored(0, c, c_step * 4);
  if constexpr (kTiles > 1) _tile_stored(1, c + kTile, c_step * 4);
  if constexpr (kTiles > 2) _tile_stored(2, c + 2 * kTile, c_step * 4);
  if constexpr (kTiles > 3) _tile_stored(3, c + 3 * kTile, c_step * 4);
}

// 8 rows and 16 columns of c.
template <std::uint8_t kDepth>
void HalfBlock(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step,
               float* c, std::int64_t c_step, std::int64_t k, bool add) {
  alignas(64) Bf16Pair memory[kTile * kTile];
  _tile_zero(6);
  if (add) _tile_loadd(6, c, c_step * 4);
  for (std::int64_t i = 0; i < k; i += kDepth, b += kDepth * b_step) {
    const auto left = LeftTile(a, i, kHalf, kDepth, memory);
    _tile_loadd(7, left.data, left.row_step * 4);
    _tile_loadd(5, b, b_step * 4);
    _tile_dpbf16ps(6, 7, 5);
  }
  _tile_stored(6, c, c_step * 4);
}

// As Bf16TileProduct, for m a multiple of 8, n of 16 and k of kDepth.
template <std::uint8_t kDepth>
void WholeTiles(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step,
                float* c, std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k,
                bool add) {
  static constexpr decltype(&Block<kDepth, 1>) kBlocks[] = {&Block<kDepth, 1>, &Block<kDepth, 2>,
                                                            &Block<kDepth, 3>, &Block<kDepth, 4>};
  static constexpr TileConfig<kDepth> kConfig;
  _tile_loadconfig(&kConfig);
  for (std::int64_t row = 0; row < m; row += kTile) {
    const BasicTileOperand<Bf16Pair> rows{a.data + row * a.row_step, a.row_step, a.k_step};
    float* const to = c + row * c_step;
    if (m - row < kTile) {
      for (std::int64_t j = 0; j < n; j += kTile) {
        HalfBlock<kDepth>(rows, b + j, b_step, to + j, c_step, k, add);
      }
      break;
    }
    for (std::int64_t j = 0; j < n; j += kMaxTiles * kTile) {
      const std::int64_t tiles = (n - j) / kTile;
      kBlocks[tiles < kMaxTiles ? tiles - 1 : kMaxTiles - 1](rows, b + j, b_step, to + j, c_step, k,
                                                             add);
    }
  }
  _tile_release();
}

// The operand from this row and this word on.
BasicTileOperand<Bf16Pair> From(const BasicTileOperand<Bf16Pair>& a, std::int64_t row,
                                std::int64_t k) {
  return {a.data + row * a.row_step + k * a.k_step, a.row_step, a.k_step};
}

void Product(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step, float* c,
             std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  const Bf16TileProduct others = Avx512Bf16TileMath()->product;
  const std::int64_t rows = m / kHalf * kHalf;
  const std::int64_t columns = n / kTile * kTile;
  if (rows == 0 || columns == 0 || k < kHalf) return others(a, b, b_step, c, c_step, m, n, k, add);
  const std::int64_t whole = k / kTile * kTile;
  const std::int64_t halves = k / kHalf * kHalf;
  if (whole > 0) WholeTiles<kTile>(a, b, b_step, c, c_step, rows, columns, whole, add);
  if (halves > whole) {
    WholeTiles<kHalf>(From(a, 0, whole), b + whole * b_step, b_step, c, c_step, rows, columns,
                      halves - whole, add || whole > 0);
  }
  if (halves < k) {
    others(From(a, 0, halves), b + halves * b_step, b_step, c, c_step, rows, columns, k - halves,
           true);
  }
  if (columns < n) {
    others(a, b + columns, b_step, c + columns, c_step, rows, n - columns, k, add);
  }
  if (rows < m) {
    others(From(a, rows, 0), b, b_step, c + rows * c_step, c_step, m - rows, n, k, add);
  }
}

// Linux gives a process the memory for tile registers when it asks.
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Bf16TileMath* AmxBf16TileMath() {
  static const bool permitted = RequestTiles();
  const Bf16TileMath* const others = Avx512Bf16TileMath();
  if (!permitted || others == nullptr) return nullptr;
  static const Bf16TileMath math{&Product, others->round_neighbours, others->round_rows};
  return &math;
}

}  // namespace gaccd

#else

const gaccd::Bf16TileMath* gaccd::AmxBf16TileMath() { return nullptr; }

#endif
