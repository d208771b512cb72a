// Relu: y = max(x, 0), elementwise. dx = dy where y > 0, else 0 (so x itself need not be kept).
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
