#include "daemon/device/cpu/pack_transposed.h"

#include <cstring>
#include <utility>

#include "collectives/base/simd.h"

namespace gaccd {
namespace {

constexpr int kTile = 16;  // rows and columns that are turned at once, in 16 vectors
constexpr std::int64_t kBlockColumns = 64;
constexpr std::int64_t kBlockElements = kTile * kBlockColumns;

using Row = float __attribute__((vector_size(kTile * sizeof(float))));

// Rows i and i + S exchange lanes, so that bit S of the row number and of the lane number change
// places. Done for S = 8, 4, 2, 1 it transposes the tile. Lane numbers from kTile on mean b.
template <int S, int... lane>
[[gnu::always_inline]] inline void ExchangeRows(Row* a, Row* b,
                                                std::integer_sequence<int, lane...>) {
  const Row low = __builtin_shufflevector(*a, *b, ((lane & S) != 0 ? kTile + lane - S : lane)...);
  *b = __builtin_shufflevector(*a, *b, ((lane & S) != 0 ? kTile + lane : lane + S)...);
  *a = low;
}

template <int S>
[[gnu::always_inline]] inline void Exchange(Row* rows) {
  for (int i = 0; i < kTile; ++i) {
    if ((i & S) == 0) {
      ExchangeRows<S>(&rows[i], &rows[i + S], std::make_integer_sequence<int, kTile>());
    }
  }
}

}  // namespace

GACCD_SIMD_CLONES
void PackTransposed(const float* weight, std::int64_t n, std::int64_t k, float* packed) {
  for (std::int64_t j = 0; j < n; j += kTile) {
    for (std::int64_t i = 0; i < k; i += kTile) {
      Row rows[kTile];
      for (int r = 0; r < kTile; ++r) {
        std::memcpy(&rows[r], weight + (j + r) * k + i, sizeof(Row));
      }
      Exchange<8>(rows);
      Exchange<4>(rows);
      Exchange<2>(rows);
      Exchange<1>(rows);
      float* block = packed + (j / kBlockColumns * (k / kTile) + i / kTile) * kBlockElements +
                     j % kBlockColumns;
      for (int r = 0; r < kTile; ++r) {
        std::memcpy(block + r * kBlockColumns, &rows[r], sizeof(Row));
      }
    }
  }
}

}  // namespace gaccd
