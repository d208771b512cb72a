// MatmulCudaSpec: sizes and types of a matrix product, used as the key of algorithm choices.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// GELU in its tanh form (daemon/ops/pointwise/activations.h), fused into the product.
enum class MatmulGelu : std::uint8_t {
  kNone,
  kApply,     // C = gelu(op(A) op(B) + bias)
  kKeep,      // the same, and aux = op(A) op(B) + bias, rounded to the type of C
  kGradient,  // C = op(A) op(B) * gelu'(aux)
};

inline constexpr std::int64_t kAuxColumns = 8;  // cuBLASLt's CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD

// C = op(A) op(B), row-major. The algorithm choice depends on all fields.
struct MatmulCudaSpec {
  std::int64_t m = 0;  // C is [m, n]
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  // A is stored as [k, m]
  bool transpose_b = false;  // B is stored as [n, k]
  DType ab = DType::kF32;    // kF32, kBF16 or kFP16, of A and B
  DType c = DType::kF32;     // kF32 or that of A and B, of C and bias
  bool bias = false;         // one value per column of C
  bool relu = false;         // a NaN may become 0: undefined in cuBLASLt
  bool accumulate = false;   // C += instead of C =; only f32 C without bias and ReLU
  // Only with transpose_a and f32 C without bias and ReLU: also writes the sums of A's stored
  // columns, f32 [m]: sum over k of A[k, m], which is the bias gradient in a weight gradient.
  // Overwrites even with accumulate: the library cannot add there.
  bool column_sums = false;
  // The same for B, which must not be transposed: f32 [n], sum over k of B[k, n]. Excludes
  // column_sums.
  bool column_sums_of_b = false;
  // Excludes the other options, except bias with kApply and kKeep. aux: [m, n] of C's type, n a
  // multiple of kAuxColumns.
  MatmulGelu gelu = MatmulGelu::kNone;
  int multiprocessors = 0;  // number of available multiprocessors; 0: all of the GPU
  // Elements from row to row of A as stored, and of C, if rows are not contiguous; 0: contiguous.
  std::int64_t stride_a = 0;
  std::int64_t stride_c = 0;

  [[nodiscard]] std::int64_t columns_a() const { return transpose_a ? m : k; }  // as stored

  bool operator==(const MatmulCudaSpec&) const = default;
  [[nodiscard]] bool writes_sums() const { return column_sums || column_sums_of_b; }
  [[nodiscard]] bool has_aux() const {
    return gelu == MatmulGelu::kKeep || gelu == MatmulGelu::kGradient;
  }
};

// Number of terms for which no library has been seen to leave out any: a multiple of the k of its
// tiles.
inline constexpr std::int64_t kWholeTiles = 64;
// Whether this is a weight gradient of another number of terms: then only a trial shows whether an
// algorithm adds the last ones.
[[nodiscard]] inline bool MayLoseLastTerms(const MatmulCudaSpec& spec) {
  return spec.transpose_a && spec.c == DType::kF32 && spec.k > kWholeTiles &&
         spec.k % kWholeTiles != 0;
}

// "product [32, 784] x [784, 512]: A bf16, B bf16 transposed, C bf16, bias, ReLU"
[[nodiscard]] std::string ToText(const MatmulCudaSpec& spec);

// kInternal, with spec and rule, if the spec is invalid.
Status Check(const MatmulCudaSpec& spec);

}  // namespace gaccd
