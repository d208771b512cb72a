// Functions that only FuseForCuda() records, for the GPU: two nodes in one, or less than a node.
// Their formulas stand with the functions that they replace.
#pragma once

#include "daemon/autograd/function.h"

namespace gaccd {

// Inputs: dy [M, out], x [M, in]. Outputs: dW [out, in], db [out]; both are added to or
// overwritten.
class LinearWeightBiasGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear_weight_bias_gradient"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }
};

// Inputs: logits [M, C], labels i32 [M], dloss f32 [1]. Outputs: dlogits, loss_sum f64 [1].
class SoftmaxCrossEntropyFused : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_cross_entropy_fused"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Inputs: logits [M, C], labels i32 [M]. Output: loss_sum f64 [1]. Where nobody reads the
// probabilities.
class SoftmaxCrossEntropyLoss : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_cross_entropy_loss"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
};

// Inputs: y [M, N], t f32 [M, N], dloss f32 [1]. Outputs: dy, loss_sum f64 [1].
class MeanSquaredErrorFused : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "mean_squared_error_fused"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

}  // namespace gaccd
