// LayerNorm over the last dimension, as PyTorch's:  x [N, D], gamma [D], beta [D]
//   mean = sum_d x / D,  rstd = 1 / sqrt(sum_d (x - mean)^2 / D + eps),  h = (x - mean) rstd
//   y = h gamma + beta
// Backward, with g = dy gamma:
//   dx = rstd (g - sum_d g / D - h sum_d (g h) / D)
//   dgamma += sum_n dy h,  dbeta += sum_n dy
// mean and rstd are kept, f32 [N]. x, y and their gradients are f32, bf16 or fp16, the rest is f32;
// with `to_bf16` x is f32 and y bf16, on the CPU.
#pragma once

#include "daemon/autograd/function.h"

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

// sum = x + residual and y = LayerNorm(sum) in one go, on the GPU. Inputs: x, residual, gamma,
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

// add(x, residual) -> sum and layer_norm(sum, ...) => add_layer_norm, in place of the add.
class Fuser;
void FuseAddLayerNorm(Fuser& fuser);

}  // namespace gaccd
