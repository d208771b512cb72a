// MatmulCuda: one prepared matrix product on the GPU,
//   C = op(A) op(B) (+ C) (+ bias, then ReLU or GELU),  optionally with the column sums of A or B;
//   or, with the input of a GELU, C = op(A) op(B) gelu'(aux).
// All matrices are row-major, as in daemon/device/cpu/matmul.h; a transposed operand is read as if
// it were transposed. Prepared once, including the choice of the algorithm; then run many times on
// CudaContext::compute(), also during stream capture.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/matmul_spec.h"

namespace gaccd {

class MatmulCuda {
 public:
  // kBackward: may overlap a reduction, and has a separate algorithm for that
  // (CudaContext::multiprocessors_left()). A product tuned for all multiprocessors takes about
  // twice the time if fewer are free, as it runs in two waves.
  enum class Pass : std::uint8_t { kForward, kBackward };

  // kUnavailable, with the spec, if cuBLASLt has no working algorithm; for a gradient of a weight
  // two products are tried first. kInternal for an invalid spec. Waits for the GPU, and temporarily
  // needs memory for A, B and C. After the last Prepare() call context.choices().Save(), and log
  // choices().DrainNotes().
  static Result<std::unique_ptr<MatmulCuda>> Prepare(CudaContext& context,
                                                     const MatmulCudaSpec& spec,
                                                     Pass pass = Pass::kForward);
  // The same for callers with an alternative: returns null if no algorithm is offered or none
  // works. An epilogue that is offered does not necessarily work.
  static Result<std::unique_ptr<MatmulCuda>> TryPrepare(CudaContext& context,
                                                        const MatmulCudaSpec& spec,
                                                        Pass pass = Pass::kForward);
  ~MatmulCuda();

  // `bias` is ignored unless spec.bias, `sums` unless spec.writes_sums(), `aux` unless
  // spec.has_aux(). Alignment: bias and sums 16 bytes; f32 operands and aux 64 bytes, bf16 32 bytes
  // (OperandAlignment() in cublaslt_product.h); otherwise kInternal. Cheap: may be called before
  // every Run().
  Status Bind(const void* a, const void* b, const void* bias, void* c, float* sums,
              void* aux = nullptr);
  // Enqueues the product. kInternal before Bind(). A captured graph keeps the current operands and
  // remains valid after this object is destroyed; the context must outlive it.
  Status Run();

 private:
  struct Parts;
  explicit MatmulCuda(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace gaccd
