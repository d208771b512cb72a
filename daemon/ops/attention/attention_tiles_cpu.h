// Operands of attention on the CPU, packed for the products of tile_product_cpu.h: f32 unchanged,
// with f32 or f64 sums, or rounded to bf16 as pairs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/ops/product/tile_product_cpu.h"

namespace gaccd {

// Rows and keys per tile: a multiple of the 16 columns that TileProduct computes at once.
inline constexpr std::int64_t kAttentionTile = 64;

// Divides memory into pieces of 4-byte elements. Without memory it only counts.
class ScratchPieces {
 public:
  explicit ScratchPieces(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  template <typename T>
  [[nodiscard]] T* Allocate(std::int64_t elements) {
    const std::size_t at = bytes_;
    bytes_ += static_cast<std::size_t>(elements) * sizeof(T);
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

// An f32 matrix with rows `step` values apart.
struct AttentionMatrix {
  const float* data;
  std::int64_t step;
  std::int64_t rows;
  std::int64_t columns;
};

// All kinds have
//   Word, Words(n)       an element of an operand; the number of them for n values of k
//   Rows(m, memory)      m as the left operand of a product over columns, packed into `memory`,
//                        [rows, Words(columns)], unless it can be read where it is
//   PackColumns(m, to)   [Words(rows), columns]: m as an operand of a product over rows
//   TileColumns(m, memory)  the same for a whole tile of kAttentionTile columns: returns `memory`
//                        or the memory of m
//   Product              TileProduct
// Values of packed pairs beyond the last row or column are 0.
struct F32AttentionTiles {
  using Word = float;
  static constexpr bool kIsF32 = true;

  [[nodiscard]] static std::int64_t Words(std::int64_t n) { return n; }
  static TileOperand Rows(const AttentionMatrix& m, float*) { return {m.data, m.step, 1}; }
  static void PackColumns(const AttentionMatrix& m, float* to);
  static const float* TileColumns(const AttentionMatrix& m, float*) { return m.data; }
  static void Product(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                      std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k,
                      bool add) {
    TileProduct(a, b, b_step, c, c_step, m, n, k, add);
  }
};

struct F64SumsAttentionTiles : F32AttentionTiles {
  static void Product(const TileOperand& a, const float* b, std::int64_t b_step, float* c,
                      std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k,
                      bool add) {
    F64TileProduct(a, b, b_step, c, c_step, m, n, k, add);
  }
};

struct Bf16AttentionTiles {
  using Word = Bf16Pair;
  static constexpr bool kIsF32 = false;

  [[nodiscard]] static std::int64_t Words(std::int64_t n) { return (n + 1) / 2; }
  BasicTileOperand<Bf16Pair> Rows(const AttentionMatrix& m, Bf16Pair* memory) const {
    PackRows(m, memory);
    return {memory, Words(m.columns), 1};
  }
  void PackRows(const AttentionMatrix& m, Bf16Pair* to) const;
  void PackColumns(const AttentionMatrix& m, Bf16Pair* to) const;
  const Bf16Pair* TileColumns(const AttentionMatrix& m, Bf16Pair* memory) const {
    PackColumns(m, memory);
    return memory;
  }
  void Product(const BasicTileOperand<Bf16Pair>& a, const Bf16Pair* b, std::int64_t b_step,
               float* c, std::int64_t c_step, std::int64_t m, std::int64_t n, std::int64_t k,
               bool add) const {
    math.product(a, b, b_step, c, c_step, m, n, k, add);
  }

  Bf16TileMath math;
};

// The first `rows` rows of `from`, of `columns` words, as the right operand of a product over
// columns: tile t of the result is [columns, kAttentionTile], the rows t kAttentionTile, ...
// transposed, 0 beyond the last one.
void TransposeAttentionTiles(const TileOperand& from, std::int64_t rows, std::int64_t columns,
                             float* to);
void TransposeAttentionTiles(const BasicTileOperand<Bf16Pair>& from, std::int64_t rows,
                             std::int64_t columns, Bf16Pair* to);

}  // namespace gaccd
