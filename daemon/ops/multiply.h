// Multiply: y = c x with a constant c; x f32 or f64, of any shape. dx = c dy.
#pragma once

#include "daemon/autograd/function.h"

namespace gaccd {

class Multiply : public Function {
 public:
  explicit Multiply(double factor) : factor_(factor) {}

  [[nodiscard]] std::string_view name() const override { return "multiply"; }
  [[nodiscard]] Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] double factor() const { return factor_; }

 private:
  double factor_;
};

}  // namespace gaccd
