// Activations, elementwise, with PyTorch's formulas (see elementwise.h):
//   gelu       y = x/2 (1 + erf(x / sqrt 2))
//              dx = dy (Phi(x) + x phi(x)), Phi the normal distribution and phi its density
//   gelu_tanh  y = x/2 (1 + t), t = tanh(sqrt(2/pi) (x + 0.044715 x^3)): GELU(approximate='tanh')
//              dx = dy ((1 + t)/2 + x/2 (1 - t^2) sqrt(2/pi) (1 + 3 * 0.044715 x^2))
//   tanh       dx = dy (1 - y^2)
//   silu       y = x s, s = 1 / (1 + exp(-x));  dx = dy s (1 + x (1 - s))
//   sigmoid    y = 1 / (1 + exp(-x));  dx = dy y (1 - y)
//   hardswish  y = x min(max(x + 3, 0), 6) / 6;  dx = 0 to -3, dy from 3, else dy (x / 3 + 1/2)
// A NaN stays NaN. Types f32, bf16 and fp16; with `to_bf16` from f32 to bf16, on the CPU.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/pointwise/elementwise.h"

namespace gaccd {

// ActivationKind is defined in elementwise.h.
class Activation : public Function {
 public:
  explicit Activation(ActivationKind kind, bool to_bf16 = false) : kind_(kind), to_bf16_(to_bf16) {}

  // "gelu", "gelu_tanh", "tanh", "silu", "sigmoid", "hardswish".
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return !to_bf16_; }

  [[nodiscard]] ActivationKind kind() const { return kind_; }

 private:
  ActivationKind kind_;
  bool to_bf16_;
};

// Inputs: dy, x; for tanh and sigmoid dy, y.
class ActivationGradient : public Function {
 public:
  explicit ActivationGradient(ActivationKind kind, bool to_bf16 = false)
      : kind_(kind), to_bf16_(to_bf16) {}

  // "gelu_gradient" and so on.
  [[nodiscard]] std::string_view name() const override;
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return !to_bf16_; }

  [[nodiscard]] ActivationKind kind() const { return kind_; }

 private:
  ActivationKind kind_;
  bool to_bf16_;
};

CpuMake MakeActivationCpu, MakeActivationGradientCpu;
CudaMake MakeActivationCuda, MakeActivationGradientCuda;
inline constexpr FunctionRow kActivationRows[] = {
    {"gelu", MakesBf16(MakeActivationCpu), MakeActivationCuda},
    {"gelu_gradient", MakesBf16(MakeActivationGradientCpu), MakeActivationGradientCuda},
    {"gelu_tanh", MakesBf16(MakeActivationCpu), MakeActivationCuda},
    {"gelu_tanh_gradient", MakesBf16(MakeActivationGradientCpu), MakeActivationGradientCuda},
    {"silu", MakesBf16(MakeActivationCpu), MakeActivationCuda},
    {"silu_gradient", MakesBf16(MakeActivationGradientCpu), MakeActivationGradientCuda},
    {"sigmoid", MakesBf16(MakeActivationCpu), MakeActivationCuda},
    {"sigmoid_gradient", MakesBf16(MakeActivationGradientCpu), MakeActivationGradientCuda},
    {"hardswish", MakesBf16(MakeActivationCpu), MakeActivationCuda},
    {"hardswish_gradient", MakesBf16(MakeActivationGradientCpu), MakeActivationGradientCuda},
    {"tanh", MakesBf16(MakeActivationCpu), MakeActivationCuda},
    {"tanh_gradient", MakesBf16(MakeActivationGradientCpu), MakeActivationGradientCuda},
};

// Relu: y = max(x, 0), elementwise. dx = 0 where y <= 0, else dy (so x need not be kept). A NaN
// stays NaN, as in PyTorch, and so reaches the loss. Exception: a relu folded into a matrix product
// on the GPU may turn NaN into 0 (matmul_spec.h). Evaluations fold nothing; in training, non-finite
// values are detected in the gradient or in the parameters (UpdateControl).
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
