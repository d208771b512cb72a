// RMS norm over the last dimension, as in PyTorch:  x [N, D], gamma [D]
//   rstd = 1 / sqrt(sum_d x^2 / D + eps),  h = x rstd,  y = h gamma
// Backward, with g = dy gamma:
//   dx = rstd (g - h sum_d (g h) / D)
//   dgamma += sum_n dy h
// rstd is kept, f32 [N]. Types as in layer norm (layer_norm.h), which shares its kernels.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: x, gamma. Outputs: y, rstd; only y has a gradient.
class RmsNorm : public Function {
 public:
  explicit RmsNorm(float eps, bool to_bf16 = false) : eps_(eps), to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "rms_norm"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] float eps() const { return eps_; }

 private:
  float eps_;
  bool to_bf16_;
};

// Inputs: dy, x, gamma, rstd. Outputs: dx, dgamma.
class RmsNormGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "rms_norm_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
  [[nodiscard]] bool can_accumulate(std::size_t output) const override { return output > 0; }
};

CpuMake MakeRmsNormCpu, MakeRmsNormGradientCpu;
CudaMake MakeRmsNormCuda, MakeRmsNormGradientCuda;
inline constexpr FunctionRow kRmsNormRows[] = {
    {"rms_norm", MakesBf16(MakeRmsNormCpu), MakeRmsNormCuda},
    {"rms_norm_gradient", MakeRmsNormGradientCpu, MakeRmsNormGradientCuda},
};

}  // namespace gaccd
