// A tile of 16 x 16 values of 4 bytes in registers, for the packings.
#pragma once

#include <cstdint>
#include <utility>

namespace gaccd {

inline constexpr int kTile = 16;
inline constexpr std::int64_t kBlockColumns = 64;  // of a block of oneDNN's packed layouts

// A row of a tile. Nothing is computed with it, so it may hold other values of 4 bytes.
using TileRow = float __attribute__((vector_size(kTile * sizeof(float))));

// Rows i and i + S exchange lanes, so that bit S of the row number and of the lane number change
// places. Lane numbers from kTile on mean b.
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

// Inline: it is compiled for the instructions of its caller.
[[gnu::always_inline]] inline void TransposeTile(TileRow* rows) {
  ExchangeTile<8>(rows);
  ExchangeTile<4>(rows);
  ExchangeTile<2>(rows);
  ExchangeTile<1>(rows);
}

}  // namespace gaccd
