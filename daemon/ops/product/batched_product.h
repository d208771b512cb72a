// BatchedProduct: products of two lists of N matrices:  y[n] = op(a[n]) op(b[n]), op(m) = m or m^T
//   op(a[n]) is [M, K], op(b[n]) is [K, P];  da and db are such products of dy and the other input
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: a, b with three dimensions, of the same type, f32, bf16 or fp16. Output: y [N, M, P].
// Sums are f32.
class BatchedProduct : public Function {
 public:
  BatchedProduct(bool transpose_a, bool transpose_b)
      : transpose_a_(transpose_a), transpose_b_(transpose_b) {}

  [[nodiscard]] std::string_view name() const override { return "batched_product"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] bool transpose_a() const { return transpose_a_; }
  [[nodiscard]] bool transpose_b() const { return transpose_b_; }

 private:
  bool transpose_a_;  // a is stored as [N, K, M]
  bool transpose_b_;  // b is stored as [N, P, K]
};

CpuMakeIn MakeBatchedProductCpu;
CudaMake MakeBatchedProductCuda;
inline constexpr FunctionRow kBatchedProductRows[] = {
    {"batched_product", MakeBatchedProductCpu, MakeBatchedProductCuda},
};

}  // namespace gaccd
