// A tile of 16 x 16 values of 4 bytes in registers, for packing weights, and smaller ones.
#pragma once

#include <cstdint>
#include <utility>

namespace gaccd {

inline constexpr int kTile = 16;
inline constexpr std::int64_t kBlockColumns = 64;  // of a block of oneDNN's packed layouts

// A row of a tile. Values are only moved, so they may be any values of 4 bytes.
using TileRow = float __attribute__((vector_size(kTile * sizeof(float))));
using HalfTileRow = float __attribute__((vector_size(kTile / 2 * sizeof(float))));

template <typename Row>
inline constexpr int kSideOf = sizeof(Row) / sizeof(float);

// Exchanges lanes of rows i and i + S, so that bit S of the row number and of the lane number are
// swapped. Lane numbers from the side on refer to b.
template <int S, typename Row, int... lane>
[[gnu::always_inline]] inline void ExchangeRows(Row* a, Row* b,
                                                std::integer_sequence<int, lane...>) {
  constexpr int kSide = kSideOf<Row>;
  const Row low = __builtin_shufflevector(*a, *b, ((lane & S) != 0 ? kSide + lane - S : lane)...);
  *b = __builtin_shufflevector(*a, *b, ((lane & S) != 0 ? kSide + lane : lane + S)...);
  *a = low;
}

// Always inlined, so that it is compiled for the instruction set of its caller.
template <typename Row, int S = kSideOf<Row> / 2>
[[gnu::always_inline]] inline void TransposeTile(Row* rows) {
  for (int i = 0; i < kSideOf<Row>; ++i) {
    if ((i & S) == 0) {
      ExchangeRows<S>(&rows[i], &rows[i + S], std::make_integer_sequence<int, kSideOf<Row>>());
    }
  }
  if constexpr (S > 1) TransposeTile<Row, S / 2>(rows);
}

}  // namespace gaccd
