// MatmulCudaSpec: which product. Sizes and types only, so that choices can be kept for it.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// C = op(A) op(B), row-major. All fields take part in the choice of an algorithm.
struct MatmulCudaSpec {
  std::int64_t m = 0;  // C is [m, n]
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  // A is stored as [k, m]
  bool transpose_b = false;  // B is stored as [n, k]
  DType ab = DType::kF32;    // kF32, kBF16 or kFP16, of A and B
  DType c = DType::kF32;     // kF32 or that of A and B, of C and bias
  bool bias = false;         // one value a column of C
  bool relu = false;         // a NaN may become 0: undefined in cuBLASLt
  bool accumulate = false;   // C += instead of C =; only f32 C without bias and ReLU
  // transpose_a only, f32 C without bias and ReLU: also writes the sums of A's stored columns, f32
  // [m]: sum over k of A[k, m]. That is the bias gradient with a weight gradient. It overwrites,
  // also with accumulate: the library cannot add there.
  bool column_sums = false;
  int multiprocessors = 0;  // of those that it may count on; 0: all of the GPU's

  bool operator==(const MatmulCudaSpec&) const = default;
};

// "product [32, 784] x [784, 512]: A bf16, B bf16 transposed, C bf16, bias, ReLU"
[[nodiscard]] std::string ToText(const MatmulCudaSpec& spec);

// kInternal, naming spec and rule, when no product may be asked for like this.
Status Check(const MatmulCudaSpec& spec);

}  // namespace gaccd
