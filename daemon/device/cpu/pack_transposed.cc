#include "daemon/device/cpu/pack_transposed.h"

#include <cstring>

#include "collectives/base/simd.h"
#include "daemon/device/cpu/transpose_tile.h"

namespace gaccd {
namespace {

constexpr std::int64_t kBlockElements = kTile * kBlockColumns;

}  // namespace

GACCD_SIMD_CLONES
void PackTransposed(const float* weight, std::int64_t n, std::int64_t k, float* packed) {
  for (std::int64_t j = 0; j < n; j += kTile) {
    for (std::int64_t i = 0; i < k; i += kTile) {
      TileRow rows[kTile];
      for (int r = 0; r < kTile; ++r) {
        std::memcpy(&rows[r], weight + (j + r) * k + i, sizeof(TileRow));
      }
      TransposeTile(rows);
      float* block = packed + (j / kBlockColumns * (k / kTile) + i / kTile) * kBlockElements +
                     j % kBlockColumns;
      for (int r = 0; r < kTile; ++r) {
        std::memcpy(block + r * kBlockColumns, &rows[r], sizeof(TileRow));
      }
    }
  }
}

}  // namespace gaccd
