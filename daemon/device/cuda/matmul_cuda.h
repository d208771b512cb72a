// MatmulCuda: one prepared matrix product on the GPU,
//   C = op(A) op(B) (+ C) (+ bias, then ReLU or GELU),  and in the same pass the column sums of A
//   or B; or, with the input of a GELU, C = op(A) op(B) gelu'(aux).
// All matrices are row-major in memory, as in daemon/device/cpu/matmul.h; a transposed operand is
// read as if it were transposed. Prepared once (the algorithm is chosen then), run many times on
// CudaContext::compute(), also while that stream is being captured.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/matmul_spec.h"

namespace gaccd {

class MatmulCuda {
 public:
  // kBackward: may overlap a reduction, and has an algorithm of its own for that
  // (CudaContext::multiprocessors_left()). A product that counts on all multiprocessors is about
  // twice as slow when it gets less: it runs in two waves.
  enum class Pass : std::uint8_t { kForward, kBackward };

  // kUnavailable, naming the spec, when cuBLASLt has no algorithm that runs; a gradient of a weight
  // may be two products then. kInternal for a spec
  // that contradicts itself. Waits for the GPU, and for a moment needs memory for A, B and C. After
  // the last Prepare(): context.choices().Save(), and log choices().TakeNotes().
  static Result<std::unique_ptr<MatmulCuda>> Prepare(CudaContext& context,
                                                     const MatmulCudaSpec& spec,
                                                     Pass pass = Pass::kForward);
  // The same where there is another way: null when none is offered or none runs. An epilogue that
  // is offered need not run.
  static Result<std::unique_ptr<MatmulCuda>> TryPrepare(CudaContext& context,
                                                        const MatmulCudaSpec& spec,
                                                        Pass pass = Pass::kForward);
  ~MatmulCuda();

  // `bias`: ignored unless spec.bias; `sums` unless spec.writes_sums(); `aux` unless
  // spec.has_aux(), it is aligned as C is. The first two 16-byte aligned; f32 at
  // multiples of 64 bytes, bf16 of 32 (AlignmentOf() in cublaslt_product.h): kInternal otherwise.
  // Cheap: may be called before every Run().
  Status Bind(const void* a, const void* b, const void* bias, void* c, float* sums,
              void* aux = nullptr);
  // Enqueues the product. kInternal before Bind(). A recorded graph keeps the operands of its
  // moment, and works on after this object is gone; the context must stay.
  Status Run();

 private:
  struct Parts;
  explicit MatmulCuda(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace gaccd
