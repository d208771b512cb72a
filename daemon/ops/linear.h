// Linear: y = x W^T + b, then optionally ReLU.  x [M, in], W [out, in], b [out], y [M, out].
//
// With dy = d objective / d y:
//   dx = dy W            linear_input_gradient(dy, W)
//   dW += dy^T x         linear_weight_gradient(dy, x)
//   db += sum_m dy[m]    bias_gradient(dy)
//
// x, y and their gradients are f32 or bf16, all of one type. W, b and their gradients are f32 in
// the graph; with bf16 the kernels read the bf16 copies of W and b.
#pragma once

#include "daemon/autograd/function.h"

namespace gaccd {

class Linear : public Function {
 public:
  explicit Linear(bool relu = false) : relu_(relu) {}

  [[nodiscard]] std::string_view name() const override { return "linear"; }
  // Inputs: x, W and, if there is a bias, b.
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  // REQUIRES: !relu(): gradients are recorded before functions are folded.
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] std::shared_ptr<const Function> FoldWith(const Function& next) const override;

  [[nodiscard]] bool relu() const { return relu_; }

 private:
  bool relu_;
};

class LinearInputGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear_input_gradient"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
};

class LinearWeightGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear_weight_gradient"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate() const override { return true; }
};

class BiasGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "bias_gradient"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate() const override { return true; }
};

}  // namespace gaccd
