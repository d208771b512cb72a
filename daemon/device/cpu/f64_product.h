// Products of f32 values whose sums are f64, for `precision: F64_SUMS`: C [m, n] = A [m, k] B [k,
// n]. The order of additions depends on k alone.
//
// Rows of operands are read in pieces, so that an operand may be stored in any order, or be the
// columns of an image:
//   a(i, first, count, to)      to[l] = A(i, first + l)
//   b(l, first, count, to)      to[j] = B(l, first + j)
//   store(i, first, count, c)   receives C(i, first + j) = c[j], once for each value
#pragma once

#include <algorithm>
#include <cstdint>

namespace gaccd {

// Blocks of an operand and of the sums, as f64, fit into a level-2 cache together.
inline constexpr std::int64_t kF64Rows = 64;
inline constexpr std::int64_t kF64Columns = 128;
inline constexpr std::int64_t kF64Depth = 64;
inline constexpr std::int64_t kF64ScratchBytes =
    static_cast<std::int64_t>(sizeof(double)) *
    (kF64Rows * kF64Depth + kF64Depth * kF64Columns + kF64Rows * kF64Columns);

// sums [rows, kF64Columns] += a [rows, kF64Depth] b [kF64Depth, kF64Columns]
void AddF64Products(const double* a, const double* b, std::int64_t rows, double* sums);

// scratch: kF64ScratchBytes.
template <typename A, typename B, typename Store>
void F64Product(std::int64_t m, std::int64_t n, std::int64_t k, const A& a, const B& b,
                const Store& store, double* scratch) {
  double* const a_block = scratch;
  double* const b_block = a_block + kF64Rows * kF64Depth;
  double* const sums = b_block + kF64Depth * kF64Columns;
  for (std::int64_t row = 0; row < m; row += kF64Rows) {
    const std::int64_t rows = std::min(kF64Rows, m - row);
    for (std::int64_t column = 0; column < n; column += kF64Columns) {
      const std::int64_t columns = std::min(kF64Columns, n - column);
      std::fill_n(sums, kF64Rows * kF64Columns, 0.0);
      for (std::int64_t l = 0; l < k; l += kF64Depth) {
        const std::int64_t depth = std::min(kF64Depth, k - l);
        std::fill_n(scratch, kF64Rows * kF64Depth + kF64Depth * kF64Columns, 0.0);
        for (std::int64_t i = 0; i < rows; ++i) a(row + i, l, depth, a_block + i * kF64Depth);
        for (std::int64_t j = 0; j < depth; ++j) {
          b(l + j, column, columns, b_block + j * kF64Columns);
        }
        AddF64Products(a_block, b_block, rows, sums);
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        store(row + i, column, columns, sums + i * kF64Columns);
      }
    }
  }
}

}  // namespace gaccd
