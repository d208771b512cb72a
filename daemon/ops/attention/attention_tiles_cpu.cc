#include "daemon/ops/attention/attention_tiles_cpu.h"

#include <algorithm>
#include <cstring>

#include "collectives/base/simd.h"
#include "daemon/device/cpu/transpose_tile.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

// As many words at a time as fit into a register; the rest one by one.
template <typename Row, typename Word>
[[gnu::always_inline]] inline void TransposeTiles(const BasicTileOperand<Word>& from,
                                                  std::int64_t rows, std::int64_t columns,
                                                  Word* to) {
  constexpr std::int64_t kSide = kSideOf<Row>;
  for (std::int64_t first = 0; first < rows; first += kAttentionTile) {
    for (std::int64_t r = first; r < first + kAttentionTile; r += kSide) {
      std::int64_t d = 0;
      for (; r + kSide <= rows && d + kSide <= columns; d += kSide) {
        Row tile[kSide];
        for (std::int64_t i = 0; i < kSide; ++i) {
          std::memcpy(&tile[i], from.data + (r + i) * from.row_step + d, sizeof(Row));
        }
        TransposeTile(tile);
        for (std::int64_t i = 0; i < kSide; ++i) {
          std::memcpy(to + (d + i) * kAttentionTile + r - first, &tile[i], sizeof(Row));
        }
      }
      for (; d < columns; ++d) {
        for (std::int64_t i = r; i < r + kSide; ++i) {
          to[d * kAttentionTile + i - first] = i < rows ? from.data[i * from.row_step + d] : Word{};
        }
      }
    }
    to += columns * kAttentionTile;
  }
}

}  // namespace

void F32AttentionTiles::PackColumns(const AttentionMatrix& m, float* to) {
  for (std::int64_t i = 0; i < m.rows; ++i) {
    std::copy_n(m.data + i * m.step, m.columns, to + i * m.columns);
  }
}

void Bf16AttentionTiles::PackRows(const AttentionMatrix& m, Bf16Pair* to) const {
  const std::int64_t pairs = m.columns / 2;
  if (m.columns == m.step && m.columns % 2 == 0) {
    math.round_neighbours(m.data, m.rows * pairs, to);
    return;
  }
  for (std::int64_t i = 0; i < m.rows; ++i, to += Words(m.columns)) {
    const float* row = m.data + i * m.step;
    math.round_neighbours(row, pairs, to);
    if (m.columns % 2 != 0) to[pairs] = ToBf16(row[m.columns - 1]).bits;
  }
}

void Bf16AttentionTiles::PackColumns(const AttentionMatrix& m, Bf16Pair* to) const {
  std::int64_t i = 0;
  for (; i + 2 <= m.rows; i += 2, to += m.columns) {
    math.round_rows(m.data + i * m.step, m.data + (i + 1) * m.step, m.columns, to);
  }
  if (i == m.rows) return;
  for (std::int64_t d = 0; d < m.columns; ++d) to[d] = ToBf16(m.data[i * m.step + d]).bits;
}

GACCD_SIMD_CLONES
void TransposeAttentionTiles(const TileOperand& from, std::int64_t rows, std::int64_t columns,
                             float* to) {
  HasRegistersOf16Floats() ? TransposeTiles<TileRow>(from, rows, columns, to)
                           : TransposeTiles<HalfTileRow>(from, rows, columns, to);
}

GACCD_SIMD_CLONES
void TransposeAttentionTiles(const BasicTileOperand<Bf16Pair>& from, std::int64_t rows,
                             std::int64_t columns, Bf16Pair* to) {
  HasRegistersOf16Floats() ? TransposeTiles<TileRow>(from, rows, columns, to)
                           : TransposeTiles<HalfTileRow>(from, rows, columns, to);
}

}  // namespace gaccd
