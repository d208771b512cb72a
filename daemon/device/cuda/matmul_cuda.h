// MatmulCuda: one prepared matrix product on the GPU,
//   C = op(A) op(B) (+ C) (+ bias, then ReLU),  and in the same pass the column sums of A or none.
// All matrices are row-major in memory, as in daemon/device/cpu/matmul.h; a transposed operand is
// read as if it were transposed. Prepared once (the algorithm is chosen then), run many times on
// CudaContext::compute(), also while that stream is being captured.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/cuda_context.h"

namespace gaccd {

struct MatmulCudaSpec {
  std::int64_t m = 0;  // C is [m, n]
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;  // A is stored as [k, m]
  bool transpose_b = false;  // B is stored as [n, k]
  DType ab = DType::kF32;    // kF32 or kBF16, of A and B
  DType c = DType::kF32;     // kF32 or kBF16, of C and bias
  bool bias = false;         // one value a column of C
  bool relu = false;
  bool accumulate = false;  // C += instead of C =; only f32 C without bias and ReLU
  // transpose_a only: also writes the sums of A's stored columns, f32 [m]: sum over k of
  // A[k, m]. That is the bias gradient beside a weight gradient. It overwrites, also with
  // accumulate: the library cannot add there.
  bool column_sums = false;

  bool operator==(const MatmulCudaSpec&) const = default;
};

class MatmulCuda {
 public:
  // kUnavailable, naming the spec, when cuBLASLt offers no algorithm: `Supports()` first where
  // there is another way.
  static Result<std::unique_ptr<MatmulCuda>> Prepare(CudaContext& context,
                                                     const MatmulCudaSpec& spec);
  // Whether cuBLASLt offers an algorithm for this.
  static Result<bool> Supports(CudaContext& context, const MatmulCudaSpec& spec);
  ~MatmulCuda();

  // `bias`: ignored unless spec.bias; `sums` unless spec.column_sums. Both 16-byte aligned.
  Status Bind(const void* a, const void* b, const void* bias, void* c, float* sums);
  Status Run();

 private:
  struct Parts;
  explicit MatmulCuda(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace gaccd
