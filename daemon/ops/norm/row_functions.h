// Functions that process each row of a matrix separately.  x, y [N, D], f32, bf16 or fp16
//   softmax       y = exp(x - lse), lse = log sum_d exp x;  dx = y (dy - sum_d dy y)
//   l2_normalize  y = x / max(norm, eps), norm = sqrt(sum_d x^2), as PyTorch's normalize
//                 dx = (dy - y sum_d dy y) / norm where norm >= eps, else dy / eps
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Softmax : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Inputs: dy, y.
class SoftmaxGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Outputs: y; norm f32 [N], without gradient.
class L2Normalize : public Function {
 public:
  explicit L2Normalize(float eps = 1e-12F) : eps_(eps) {}

  [[nodiscard]] std::string_view name() const override { return "l2_normalize"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] float eps() const { return eps_; }

 private:
  float eps_;
};

// Inputs: dy, y, norm.
class L2NormalizeGradient : public Function {
 public:
  explicit L2NormalizeGradient(float eps) : eps_(eps) {}

  [[nodiscard]] std::string_view name() const override { return "l2_normalize_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] float eps() const { return eps_; }

 private:
  float eps_;
};

CpuMake MakeSoftmaxCpu, MakeSoftmaxGradientCpu, MakeL2NormalizeCpu, MakeL2NormalizeGradientCpu;
CudaMake MakeSoftmaxCuda, MakeSoftmaxGradientCuda, MakeL2NormalizeCuda, MakeL2NormalizeGradientCuda;
inline constexpr FunctionRow kRowFunctionRows[] = {
    {"softmax", MakeSoftmaxCpu, MakeSoftmaxCuda},
    {"softmax_gradient", MakeSoftmaxGradientCpu, MakeSoftmaxGradientCuda},
    {"l2_normalize", MakeL2NormalizeCpu, MakeL2NormalizeCuda},
    {"l2_normalize_gradient", MakeL2NormalizeGradientCpu, MakeL2NormalizeGradientCuda},
};

}  // namespace gaccd
