// Reshape: the same elements in the same order with another shape, for example [B, T, D] <-> [B T,
// D]. A view: no memory, no kernel, any type. The gradient restores the shape.
// Detach: the same values without a gradient, as torch.Tensor.detach(). A view, too.
#pragma once

#include <utility>

#include "daemon/autograd/function.h"

namespace gaccd {

class Reshape : public Function {
 public:
  // One size may be kRest: it is computed from the number of elements.
  static constexpr std::int64_t kRest = -1;
  explicit Reshape(Shape shape) : shape_(std::move(shape)) {}

  [[nodiscard]] std::string_view name() const override { return "reshape"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool is_view() const override { return true; }

 private:
  Shape shape_;
};

class Detach : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "detach"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool is_view() const override { return true; }
  [[nodiscard]] bool stops_gradient() const override { return true; }
};

}  // namespace gaccd
