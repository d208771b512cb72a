// A tile of 16 x 16 values of 4 bytes in registers, for packing weights.
#pragma once

#include <cstdint>
#include <utility>

namespace gaccd {

inline constexpr int kTile = 16;
inline constexpr std::int64_t kBlockColumns = 64;  // of a block of oneDNN's packed layouts

// A row of a tile. Values are only moved, so they may be any values of 4 bytes.
using TileRow = float __attribute__((vector_size(kTile * sizeof(float))));

// Exchanges lanes of rows i and i + S, so that bit S of the row number and of the lane number are
// swapped. Lane numbers from kTile on refer to b.
template <int S, int... lane>
[[gnu::always_inline]] inline void ExchangeRows(TileRow* a, TileRow* b,
                                                std::integer_sequence<int, lane...>) {
  const TileRow low =
      __builtin_shufflevector(*a, *b, ((lane & S) != 0 ? kTile + lane - S : lane)...);
  *b = __builtin_shufflevector(*a, *b, ((lane & S) != 0 ? kTile + lane : lane + S)...);
  *a = low;
}

template <int S>
[[gnu::always_inline]] inline void ExchangeTile(TileRow* rows) {
  for (int i = 0; i < kTile; ++i) {
    if ((i & S) == 0) {
      ExchangeRows<S>(&rows[i], &rows[i + S], std::make_integer_sequence<int, kTile>());
    }
  }
}

// Always inlined, so that it is compiled for the instruction set of its caller.
[[gnu::always_inline]] inline void TransposeTile(TileRow* rows) {
  ExchangeTile<8>(rows);
  ExchangeTile<4>(rows);
  ExchangeTile<2>(rows);
  ExchangeTile<1>(rows);
}

}  // namespace gaccd
