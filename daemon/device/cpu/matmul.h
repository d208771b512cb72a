// Matmul: one prepared matrix product on the CPU, C = op(A) op(B) (+ bias) (+ C). All matrices are
// row-major and f32; A and B, and then C, may be bf16. Sums are f32, or f64 for f32 matrices if the
// context says so. A transposed operand is read
// as if it were transposed. Prepared once, run many times; in a run gaccd allocates no memory and
// looks nothing up.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cpu/cpu_context.h"

namespace gaccd {

struct MatmulSpec {
  std::int64_t m = 0;  // C is [m, n]
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  // A is stored as [k, m]
  bool transpose_b = false;  // B is stored as [n, k]
  bool bias = false;         // one value per column
  bool accumulate = false;   // C += instead of C =
  bool multiply = false;     // C is multiplied by f32 factors [m, n]; without accumulate
  bool bf16 = false;         // type of A and B, but not of the values at packed_b
  bool bf16_c = false;       // C is rounded to bf16; without accumulate
  // Not null: B is this f32 weight, used through a packed copy (see PackedWeights), which is bf16
  // if `bf16`.
  const float* packed_b = nullptr;
  // B is already in oneDNN's layout BA16a64b2a (packed_weights.h); bf16, k a multiple of 32, n
  // of 64.
  bool blocked_b = false;
};

class Matmul {
 public:
  // `context` must outlive it. REQUIRES: not bf16 if context.f64_sums(). kInternal, with the sizes,
  // if oneDNN fails (bf16: also a CPU for which DetectCpuBf16() is kNone).
  static Result<Matmul> Prepare(CpuContext& context, const MatmulSpec& spec);

  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }

  // Sets the operands; a, b and c have the types of the spec. `b` is ignored for a packed weight,
  // `bias` without bias and `factors` without multiply. `scratch` has scratch_bytes(). Cheap: may
  // be called before every Run().
  void Bind(const void* a, const void* b, const float* bias, void* c, void* scratch,
            const float* factors = nullptr);

  // kInternal if oneDNN fails. REQUIRES: Bind().
  Status Run();

 private:
  Matmul() = default;
  void RunF64() const;

  // For f64 sums, in place of a primitive.
  struct F64Operands {
    const float* a;
    const float* b;
    const float* bias;
    float* c;
    double* scratch;
    const float* factors;
  };
  std::optional<MatmulSpec> f64_;
  F64Operands f64_operands_{};

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  dnnl::memory a_, b_, bias_, c_, scratch_, factors_;
  bool packed_ = false;
  std::int64_t scratch_bytes_ = 0;
  // Kept, as the C++ API would allocate it on the heap at every call.
  std::vector<dnnl_exec_arg_t> args_;
};

// C = A^T B, or C += A^T B with `accumulate`: A is [k, m], B [k, n], C [m, n], all row-major, f32.
// Faster than a prepared product, which copies A^T; GFLOP/s of one Zen 5 core:
//   C [512, 784], k = 32      prepared 233, this 239
//   C [512, 784], k = 128     prepared 190 to 250, depending on the caches; this 255
//   C [384, 1152], k = 1024   prepared 233, this 255
//   C [768, 3072], k = 256    prepared 192, this 257
// Uses up to 16 MB temporarily, for large matrices. kInternal if oneDNN fails.
Status TransposedProduct(const float* a, const float* b, std::int64_t m, std::int64_t n,
                         std::int64_t k, bool accumulate, float* c);

// Generates the code of all transposed products in advance, which takes 4 MB and the first time 20
// ms.
Status PrepareTransposedProducts();

}  // namespace gaccd
