// Softmax cross-entropy of logits z [M, C] against labels t [M] in [0, C):
//   p = softmax(z),  loss_sum = sum_m -log p[m, t[m]]
// A sum over samples, not a mean: the weight 1/D, with D the sample count of the whole update,
// comes in as the gradient of loss_sum (see train/). Backward: dz = (p - onehot(t)) dloss.
#pragma once

#include "daemon/autograd/function.h"

namespace gaccd {

class Fuser;

// Inputs: logits f32, bf16 or fp16 [M, C], labels i32 [M]. Outputs: loss_sum f64 [1], probabilities
// of the shape and type of the logits.
class SoftmaxCrossEntropy : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_cross_entropy"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
};

// Inputs: probabilities, labels, dloss f32 [1]. Output: dlogits, of their type.
class SoftmaxCrossEntropyGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_cross_entropy_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Loss and gradient in one pass over the logits, for the GPU. Inputs: logits, labels, dloss f32
// [1]. Outputs: dlogits, loss_sum f64 [1].
class SoftmaxCrossEntropyFused : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_cross_entropy_fused"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Without probabilities, for the GPU. Inputs: logits, labels. Output: loss_sum f64 [1].
class SoftmaxCrossEntropyLoss : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "softmax_cross_entropy_loss"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
};

// The loss and its gradient -> one pass; a loss whose probabilities nobody reads -> no memory for
// them.
void FuseSoftmaxCrossEntropy(Fuser& fuser);

}  // namespace gaccd
