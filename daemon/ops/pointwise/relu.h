// Relu: y = max(x, 0), elementwise. dx = 0 where y <= 0, else dy (so x need not be kept). A NaN
// stays NaN, as in PyTorch, and so reaches the loss. Exception: a relu folded into a matrix product
// on the GPU may turn NaN into 0 (matmul_spec.h). Evaluations fold nothing; in training, non-finite
// values are detected in the gradient or in the parameters (UpdateControl).
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Relu : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "relu"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Inputs: dy, y, and, if dy was the result of a separate addition (FuseReluGradients), its second
// summand. On the CPU, y may be bf16 if dy is f32, and with `to_bf16` dx too.
class ReluGradient : public Function {
 public:
  explicit ReluGradient(bool to_bf16 = false) : to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "relu_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return !to_bf16_; }

 private:
  bool to_bf16_;
};

// Merges an addition into the relu gradient that is its only reader.
void FuseReluGradients(Fuser& fuser);

CpuMake MakeReluCpu, MakeReluGradientCpu;
CudaMake MakeReluCuda, MakeReluGradientCuda;
inline constexpr FunctionRow kReluRows[] = {
    {"relu", MakeReluCpu, MakeReluCuda},
    {"relu_gradient", AcceptsBf16(MakesBf16(MakeReluGradientCpu)), MakeReluGradientCuda,
     FuseReluGradients},
};

}  // namespace gaccd
