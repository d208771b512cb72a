// Matmul: one prepared matrix product on the CPU, C = op(A) op(B) (+ bias) (+ C).
// All matrices are row-major in memory and f32, but that A and B, and then C, may be bf16: products
// of bf16 are summed in f32. A transposed operand is read as if it were transposed. Prepared once,
// run many times; running it allocates nothing of ours and looks nothing up.
#pragma once

#include <dnnl.hpp>
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
  bool bias = false;         // one value a column
  bool accumulate = false;   // C += instead of C =
  bool bf16 = false;         // A and B, but not what packed_b points at
  bool bf16_c = false;       // C is rounded to bf16; without accumulate
  // Not null: B is this weight, f32, used through a packed copy (see PackedWeights), which with
  // bf16 is rounded to it.
  const float* packed_b = nullptr;
};

class Matmul {
 public:
  // `context` must outlive it. kInternal, with the sizes, when oneDNN refuses (bf16: also a CPU
  // for which Bf16OfCpu() is kNone); kOs without memory for a packed copy.
  static Result<Matmul> Prepare(CpuContext& context, const MatmulSpec& spec);

  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }

  // Sets the operands, a, b and c of the type of the spec. `b` is ignored when the weight is
  // packed, `bias` when there is none. `scratch` has scratch_bytes(). Cheap: may be called before
  // every Run().
  void Bind(const void* a, const void* b, const float* bias, void* c, void* scratch);

  // kInternal when oneDNN fails. REQUIRES: Bind().
  Status Run();

 private:
  Matmul() = default;

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  dnnl::memory a_, b_, bias_, c_, scratch_;
  bool packed_ = false;
  std::int64_t scratch_bytes_ = 0;
  // What the C++ API would build anew, on the heap, at every call.
  std::vector<dnnl_exec_arg_t> args_;
};

// C = A^T B, or C += A^T B with `accumulate`: A is [k, m], B [k, n], C [m, n], all row-major, f32.
// Faster than a prepared product, which copies A^T; GFLOP/s of one Zen 5 core:
//   C [512, 784], k = 32      233 prepared, 239 this
//   C [512, 784], k = 128     190 to 250, by what else is in the caches; 255
//   C [384, 1152], k = 1024   233, 255
//   C [768, 3072], k = 256    192, 257
// Takes up to 16 MB while it runs, for large matrices. kInternal when oneDNN fails.
Status TransposedProduct(const float* a, const float* b, std::int64_t m, std::int64_t n,
                         std::int64_t k, bool accumulate, float* c);

// Has the code of all of them generated, which takes 4 MB and the first time 20 ms, so that the
// first product does not.
Status PrepareTransposedProducts();

}  // namespace gaccd
