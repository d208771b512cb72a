// LayerNorm over the last dimension, as in PyTorch:  x [N, D], gamma [D], beta [D]
//   mean = sum_d x / D,  rstd = 1 / sqrt(sum_d (x - mean)^2 / D + eps),  h = (x - mean) rstd
//   y = h gamma + beta
// Backward, with g = dy gamma:
//   dx = rstd (g - sum_d g / D - h sum_d (g h) / D)
//   dgamma += sum_n dy h,  dbeta += sum_n dy
// mean and rstd are kept, f32 [N]. x, y and their gradients are f32, bf16 or fp16, the rest is f32;
// with `to_bf16` x is f32 and y bf16, on the CPU.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: x, gamma, beta. Outputs: y, mean, rstd; only y has a gradient.
class LayerNorm : public Function {
 public:
  explicit LayerNorm(float eps = 1e-5F, bool to_bf16 = false) : eps_(eps), to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "layer_norm"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] float eps() const { return eps_; }

 private:
  float eps_;
  bool to_bf16_;
};

// Inputs: dy, x, gamma, mean, rstd. Outputs: dx, dgamma, dbeta.
class LayerNormGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "layer_norm_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
  [[nodiscard]] bool can_accumulate(std::size_t output) const override { return output > 0; }
};

// sum = x + residual and y = LayerNorm(sum) in one kernel, on the GPU. Inputs: x, residual, gamma,
// beta. Outputs: sum, y, mean, rstd.
class AddLayerNorm : public Function {
 public:
  explicit AddLayerNorm(float eps) : eps_(eps) {}

  [[nodiscard]] std::string_view name() const override { return "add_layer_norm"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] float eps() const { return eps_; }

 private:
  float eps_;
};

// sum = dx + residual, on the GPU rounded once, fused into the gradient. Inputs: dy, x, gamma,
// mean, rstd, residual. Outputs: sum, dgamma, dbeta.
class LayerNormGradientAdd : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "layer_norm_gradient_add"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
  [[nodiscard]] bool can_accumulate(std::size_t output) const override { return output > 0; }
};

// add(x, residual) -> sum and layer_norm(sum, ...) => add_layer_norm, at the position of the add.
class Fuser;
void FuseAddLayerNorm(Fuser& fuser);
// layer_norm_gradient -> dx, whose only reader is add(dx, residual) or add(residual, dx) with a
// residual computed earlier => layer_norm_gradient_add, at the position of the gradient.
void FuseLayerNormGradientAdd(Fuser& fuser);

CpuMake MakeLayerNormCpu, MakeLayerNormGradientCpu;
CudaMake MakeLayerNormCuda, MakeAddLayerNormCuda, MakeLayerNormGradientCuda;
inline constexpr FunctionRow kLayerNormRows[] = {
    {"layer_norm", MakesBf16(MakeLayerNormCpu), MakeLayerNormCuda},
    {"add_layer_norm", nullptr, MakeAddLayerNormCuda, FuseAddLayerNorm},
    {"layer_norm_gradient", MakeLayerNormGradientCpu, MakeLayerNormGradientCuda},
    {"layer_norm_gradient_add", MakeLayerNormGradientCpu, MakeLayerNormGradientCuda,
     FuseLayerNormGradientAdd},
};

// RMS norm over the last dimension, as in PyTorch:  x [N, D], gamma [D]
//   rstd = 1 / sqrt(sum_d x^2 / D + eps),  h = x rstd,  y = h gamma
// Backward, with g = dy gamma:
//   dx = rstd (g - h sum_d (g h) / D)
//   dgamma += sum_n dy h
// rstd is kept, f32 [N]. Types as in layer norm, which shares its kernels.

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
