// CublasLtProduct: one product as cuBLASLt wants it described, and its calls. cuBLASLt's matrices
// are column-major: a row-major [rows, columns] matrix is, in the same memory, the column-major
// [columns, rows] one with leading dimension `columns`. So the library computes the transpose,
//   C^T [n, m] = op(B)^T [n, k]  op(A)^T [k, m],
// and its first operand is our B:
//
//   the library's   is our   stored row-major as        it reads [rows, cols], ld   operation
//   A'              B        [k, n]                     [n, k], n                   N
//                            [n, k]  transpose_b        [k, n], k                   T
//   B'              A        [m, k]                     [k, m], k                   N
//                            [k, m]  transpose_a        [m, k], m                   T
//   D', C'          C        [m, n]                     [n, m], n
//   bias (rows of D')             one value a column of C: n
//   BGRADB (columns of D')        sums over k of B' = op(A)^T: one value a row of op(A): m.
//   aux of GELU, as D'            [m, n]                         [n, m], n
//   BGRADA (rows of D')           sums over k of A' = op(B)^T: one value a column of op(B): n
// With a stride of A or C, that is its ld.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cublaslt_api.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/matmul_spec.h"

namespace gaccd {

// OK for success. Otherwise "`what`: out of memory (cuBLASLt status 3)": kOs if memory is short,
// else kUnavailable.
Status CublasLtStatus(const CublasLtApi& api, cublasStatus_t status, std::string_view what);

// Whether `status` only means that this product is not supported, not that the GPU failed.
[[nodiscard]] bool IsUnsupported(cublasStatus_t status);

// Minimum alignment in bytes of operands of this type. Offsets in the arena (MemoryPlan) and in f32
// flat buffers (FlatLayout) are multiples of 64 bytes; a 16-bit copy of a flat buffer has half of
// that. Only algorithms that accept this alignment are chosen.
[[nodiscard]] constexpr std::uint32_t OperandAlignment(DType dtype) {
  return dtype == DType::kF32 ? 64 : 32;
}
// of bias and column sums, as epilogues require
inline constexpr std::uint32_t kBiasAlignment = 16;

struct MatmulPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  // only read if spec.bias
  float* sums = nullptr;       // only written if spec.writes_sums()
  void* aux = nullptr;         // written with MatmulGelu::kKeep, read with kGradient
};

// Movable; used by the thread of its context, which must outlive it.
class CublasLtProduct {
 public:
  static constexpr int kCandidates = 32;

  // REQUIRES: Check(spec).ok().
  static Result<CublasLtProduct> Create(CudaContext& context, const MatmulCudaSpec& spec);

  // The algorithms that cuBLASLt offers within the context's workspace, in its order of expected
  // speed; empty if there is none. Deterministic: without reductions in arrival order. C of 16
  // bits: without partial sums in 16 bits.
  Result<std::vector<cublasLtMatmulAlgo_t>> Candidates();

  // Whether the library accepts an algorithm from another source for this product and workspace.
  // This does not guarantee that it works.
  [[nodiscard]] bool Accepts(const cublasLtMatmulAlgo_t& algorithm);

  // kInternal, with the address, for a pointer that is null or not aligned to OperandAlignment().
  Status Bind(const MatmulPointers& pointers);
  void Unbind() { pointers_ = {}; }
  [[nodiscard]] bool bound() const { return pointers_.c != nullptr; }
  // Enqueues the product on CudaContext::compute(). REQUIRES: Bind().
  cublasStatus_t Enqueue(const cublasLtMatmulAlgo_t& algorithm);

  [[nodiscard]] const MatmulCudaSpec& spec() const { return spec_; }
  [[nodiscard]] CudaContext& context() const { return *context_; }

 private:
  template <typename Handle>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;

  CublasLtProduct(CudaContext& context, const MatmulCudaSpec& spec);
  Status Describe();
  Status SetLayout(Owned<cublasLtMatrixLayout_t>* layout, DType dtype, std::int64_t rows,
                   std::int64_t columns, std::int64_t stride);
  Status SetPreference();
  Status SetBiasPointer(const void* pointer);
  Status SetAuxPointer(const void* pointer);
  [[nodiscard]] cublasLtEpilogue_t Epilogue() const;

  CudaContext* context_;
  MatmulCudaSpec spec_;
  Owned<cublasLtMatmulDesc_t> description_;
  // of our operands, not the library's
  Owned<cublasLtMatrixLayout_t> layout_a_, layout_b_, layout_c_;
  Owned<cublasLtMatmulPreference_t> preference_;
  MatmulPointers pointers_;
};

}  // namespace gaccd
