// The loops of the products of tile_product_cpu.h, for any arithmetic. Always inlined, so that they
// are compiled for the instruction set of the caller.
#pragma once

#include <cstdint>
#include <cstring>

#include "daemon/ops/product/tile_product_cpu.h"

namespace gaccd {

using TileFloats = float __attribute__((vector_size(kTileColumns * sizeof(float))));

// Arithmetic defines: Word; Words, 16 of them; kRows, the rows of c that are summed in parallel;
// and MultiplyAdd(word, words, &sums) for 16 sums and, with a word instead of words, for one.
template <typename Arithmetic, std::int64_t kBlock>
[[gnu::always_inline]] inline void TileProductBlock(
    const BasicTileOperand<typename Arithmetic::Word>& a, const typename Arithmetic::Word* b,
    std::int64_t b_step, float* c, std::int64_t c_step, std::int64_t k, bool add) {
  TileFloats sums[kBlock];
  for (std::int64_t r = 0; r < kBlock; ++r) {
    sums[r] = TileFloats{};
    if (add) std::memcpy(&sums[r], c + r * c_step, sizeof(TileFloats));
  }
  for (std::int64_t i = 0; i < k; ++i) {
    typename Arithmetic::Words row;
    std::memcpy(&row, b + i * b_step, sizeof(row));
    for (std::int64_t r = 0; r < kBlock; ++r) {
      Arithmetic::MultiplyAdd(a.data[r * a.row_step + i * a.k_step], row, &sums[r]);
    }
  }
  for (std::int64_t r = 0; r < kBlock; ++r) {
    std::memcpy(c + r * c_step, &sums[r], sizeof(TileFloats));
  }
}

// Processes rows of c from `first` on in blocks of kBlock, and all columns up to `columns`. Returns
// the row at which it stopped.
template <typename Arithmetic, std::int64_t kBlock>
[[gnu::always_inline]] inline std::int64_t TileProductRows(
    const BasicTileOperand<typename Arithmetic::Word>& a, const typename Arithmetic::Word* b,
    std::int64_t b_step, float* c, std::int64_t c_step, std::int64_t first, std::int64_t m,
    std::int64_t columns, std::int64_t k, bool add) {
  for (; first + kBlock <= m; first += kBlock) {
    const BasicTileOperand<typename Arithmetic::Word> rows{a.data + first * a.row_step, a.row_step,
                                                           a.k_step};
    for (std::int64_t j = 0; j < columns; j += kTileColumns) {
      TileProductBlock<Arithmetic, kBlock>(rows, b + j, b_step, c + first * c_step + j, c_step, k,
                                           add);
    }
  }
  return first;
}

template <typename Arithmetic>
[[gnu::always_inline]] inline void TileProductLoop(
    const BasicTileOperand<typename Arithmetic::Word>& a, const typename Arithmetic::Word* b,
    std::int64_t b_step, float* c, std::int64_t c_step, std::int64_t m, std::int64_t n,
    std::int64_t k, bool add) {
  constexpr std::int64_t kMax = Arithmetic::kRows;
  constexpr std::int64_t kSome = kMax / 2;
  const std::int64_t whole = n / kTileColumns * kTileColumns;
  std::int64_t row = 0;
  row = TileProductRows<Arithmetic, kMax>(a, b, b_step, c, c_step, row, m, whole, k, add);
  row = TileProductRows<Arithmetic, kSome>(a, b, b_step, c, c_step, row, m, whole, k, add);
  TileProductRows<Arithmetic, 1>(a, b, b_step, c, c_step, row, m, whole, k, add);
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t j = whole; j < n; ++j) {
      float sum = add ? c[r * c_step + j] : 0.0F;
      for (std::int64_t i = 0; i < k; ++i) {
        Arithmetic::MultiplyAdd(a.data[r * a.row_step + i * a.k_step], b[i * b_step + j], &sum);
      }
      c[r * c_step + j] = sum;
    }
  }
}

}  // namespace gaccd
