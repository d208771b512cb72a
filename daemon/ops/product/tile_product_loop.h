// The loops of the products of tile_product_cpu.h, for any arithmetic. Always inlined, so that they
// are compiled for the instruction set of the caller.
#pragma once

#include <cstdint>
#include <cstring>

#include "daemon/ops/product/tile_product_cpu.h"

namespace gaccd {

// Vectors of 16 floats, for AVX-512, and of 8, for AVX2 (HasRegistersOf16Floats()).
using TileFloats = float __attribute__((vector_size(64)));
using HalfTileFloats = float __attribute__((vector_size(32)));

// Arithmetic defines: Word; Sums, a vector of floats, and Words, one of as many words; kRows, the
// rows of c that are summed in parallel, and kFewRows for those that remain; kColumns, the columns
// summed in parallel, one or two times kTileColumns; and MultiplyAdd(word, words, &sums) for a
// vector and, with a word instead of words, for one sum.
template <typename Arithmetic, std::int64_t kBlock, std::int64_t kColumns>
[[gnu::always_inline]] inline void TileProductBlock(
    const BasicTileOperand<typename Arithmetic::Word>& a, const typename Arithmetic::Word* b,
    std::int64_t b_step, float* c, std::int64_t c_step, std::int64_t k, bool add) {
  using Sums = typename Arithmetic::Sums;
  constexpr std::int64_t kLanes = sizeof(Sums) / sizeof(float);
  constexpr std::int64_t kParts = kColumns / kLanes;
  Sums sums[kBlock][kParts];
  for (std::int64_t r = 0; r < kBlock; ++r) {
    for (std::int64_t p = 0; p < kParts; ++p) {
      sums[r][p] = Sums{};
      if (add) std::memcpy(&sums[r][p], c + r * c_step + p * kLanes, sizeof(Sums));
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    typename Arithmetic::Words row[kParts];
    for (std::int64_t p = 0; p < kParts; ++p) {
      std::memcpy(&row[p], b + i * b_step + p * kLanes, sizeof(row[p]));
    }
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < kBlock; ++r) {
#pragma GCC unroll 2
      for (std::int64_t p = 0; p < kParts; ++p) {
        Arithmetic::MultiplyAdd(a.data[r * a.row_step + i * a.k_step], row[p], &sums[r][p]);
      }
    }
  }
  for (std::int64_t r = 0; r < kBlock; ++r) std::memcpy(c + r * c_step, sums[r], sizeof(sums[r]));
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
    float* const to = c + first * c_step;
    std::int64_t j = 0;
    for (; j + Arithmetic::kColumns <= columns; j += Arithmetic::kColumns) {
      TileProductBlock<Arithmetic, kBlock, Arithmetic::kColumns>(rows, b + j, b_step, to + j,
                                                                 c_step, k, add);
    }
    if (j < columns) {
      TileProductBlock<Arithmetic, kBlock, kTileColumns>(rows, b + j, b_step, to + j, c_step, k,
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
  constexpr std::int64_t kSome = Arithmetic::kFewRows;
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
