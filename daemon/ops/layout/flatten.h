// Flatten: [M, a, b, ...] -> [M, a*b*...]: the same memory with another shape. The gradient
// restores the shape. Other shapes: reshape.h.
#pragma once

#include "daemon/autograd/function.h"

namespace gaccd {

class Flatten : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "flatten"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool is_view() const override { return true; }
};

}  // namespace gaccd
