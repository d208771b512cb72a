// Concat: joins matrices by columns:  x_0 [N, C_0], x_1 [N, C_1], .. -> y [N, C_0 + C_1 + ..]
//   y[n] = (x_0[n], x_1[n], ..);  dx_k[n] = its columns of dy[n]
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: one or more of the same type, f32, bf16 or fp16.
class Concat : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "concat"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
};

CpuMake MakeConcatCpu;
CudaMake MakeConcatCuda;
inline constexpr FunctionRow kConcatRows[] = {{"concat", MakeConcatCpu, MakeConcatCuda}};

}  // namespace gaccd
