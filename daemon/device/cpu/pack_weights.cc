#include <algorithm>
#include <cstddef>
#include <cstring>

#include "collectives/base/simd.h"
#include "daemon/device/cpu/packed_weights.h"
#include "daemon/device/cpu/transpose_tile.h"

namespace gaccd {
namespace {

constexpr std::int64_t kBlockRows = 2 * kTile;  // as pairs in a word
constexpr std::int64_t kBlockWords = kTile * kBlockColumns;

using Words = std::uint32_t __attribute__((vector_size(kTile * sizeof(std::uint32_t))));
using Halves = std::uint16_t __attribute__((vector_size(kTile * sizeof(std::uint16_t))));

// Rounds in the lower half of each word. Adds just under half of the last kept place, so that a
// carry rounds up; the lowest kept bit decides ties; a NaN stays NaN.
[[gnu::always_inline]] inline void Round(const float* values, Words* rounded) {
  Words bits;
  std::memcpy(&bits, values, sizeof(bits));
  const auto is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const Words nan = (bits >> 16) | 0x40U;
  const Words nearest = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  *rounded = is_nan ? nan : nearest;
}

// 32 values as 16 words of two, the first one in the lower half.
[[gnu::always_inline]] inline void RoundPairs(const float* values, TileRow* row) {
  for (std::size_t half = 0; half < 2; ++half) {
    Words rounded;
    Round(values + half * kTile, &rounded);
    const Halves narrow = __builtin_convertvector(rounded, Halves);
    std::memcpy(reinterpret_cast<std::byte*>(row) + half * sizeof(narrow), &narrow, sizeof(narrow));
  }
}

// Packs 16 columns, which are rows of the stored matrix, of up to 32 rows into a block.
[[gnu::always_inline]] inline void PackColumns(const float* stored, std::int64_t step,
                                               std::int64_t rows, std::uint32_t* block) {
  TileRow tile[kTile];
  for (std::int64_t j = 0; j < kTile; ++j) {
    if (rows == kBlockRows) {
      RoundPairs(stored + j * step, &tile[j]);
    } else {
      float padded[kBlockRows] = {};
      std::memcpy(padded, stored + j * step, kTile * sizeof(float));
      RoundPairs(padded, &tile[j]);
    }
  }
  TransposeTile(tile);
  for (std::int64_t pair = 0; pair < kTile; ++pair) {
    std::memcpy(block + pair * kBlockColumns, &tile[pair], sizeof(TileRow));
  }
}

// Packs 64 columns of up to 32 rows into a block.
[[gnu::always_inline]] inline void PackRows(const float* stored, std::int64_t step,
                                            std::int64_t rows, std::uint32_t* block) {
  for (std::int64_t i = 0; i < rows; i += 2) {
    for (std::int64_t j = 0; j < kBlockColumns; j += kTile) {
      Words pairs;
      Words second;
      Round(stored + i * step + j, &pairs);
      Round(stored + (i + 1) * step + j, &second);
      pairs |= second << 16;
      std::memcpy(block + i / 2 * kBlockColumns + j, &pairs, sizeof(pairs));
    }
  }
  std::fill(block + rows / 2 * kBlockColumns, block + kBlockWords, 0U);
}

}  // namespace

// Block by block: the lines of a block are then written while they are in the cache.
GACCD_SIMD_CLONES
void PackTransposed(const float* weight, std::int64_t n, std::int64_t k, float* packed) {
  float* block = packed;
  for (std::int64_t j = 0; j < n; j += kBlockColumns) {
    for (std::int64_t i = 0; i < k; i += kTile, block += kBlockWords) {
      for (std::int64_t c = 0; c < kBlockColumns; c += kTile) {
        TileRow rows[kTile];
        for (int r = 0; r < kTile; ++r) {
          std::memcpy(&rows[r], weight + (j + c + r) * k + i, sizeof(TileRow));
        }
        TransposeTile(rows);
        for (int r = 0; r < kTile; ++r) {
          std::memcpy(block + r * kBlockColumns + c, &rows[r], sizeof(TileRow));
        }
      }
    }
  }
}

GACCD_SIMD_CLONES
void PackBf16(const float* weight, bool transposed, std::int64_t k, std::int64_t n,
              std::int64_t first, std::int64_t last, std::uint16_t* packed) {
  auto* const blocks = reinterpret_cast<std::uint32_t*>(packed);
  const std::int64_t blocks_down = (k + kBlockRows - 1) / kBlockRows;
  const std::int64_t first_column = transposed ? first : 0;
  const std::int64_t last_column = transposed ? last : n;
  const std::int64_t first_row = transposed ? 0 : first;
  const std::int64_t last_row = transposed ? k : last;
  for (std::int64_t j = first_column; j < last_column; j += kBlockColumns) {
    for (std::int64_t i = first_row; i < last_row; i += kBlockRows) {
      std::uint32_t* const block =
          blocks + (j / kBlockColumns * blocks_down + i / kBlockRows) * kBlockWords;
      const std::int64_t rows = std::min(kBlockRows, k - i);
      if (!transposed) {
        PackRows(weight + i * n + j, n, rows, block);
        continue;
      }
      for (std::int64_t c = 0; c < kBlockColumns; c += kTile) {
        PackColumns(weight + (j + c) * k + i, k, rows, block + c);
      }
    }
  }
}

}  // namespace gaccd
