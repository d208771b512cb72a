// Relu: y = max(x, 0), elementwise. dx = dy where y > 0, else 0 (so x itself need not be kept).
// A NaN becomes 0, because oneDNN's folded ReLU does so: a NaN in a hidden weight shows neither in
// the loss nor in the gradient. Weights and features are to be checked where they come in.
#pragma once

#include "daemon/autograd/function.h"

namespace gaccd {

class Relu : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "relu"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Inputs: dy, y.
class ReluGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "relu_gradient"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

}  // namespace gaccd
