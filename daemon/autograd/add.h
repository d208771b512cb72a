// c = a + b, elementwise, same shapes. The gradients of a and b are that of c, unchanged. Defined
// here and not in ops/ because the gradient of a value with several users is the sum of theirs.
#pragma once

#include "daemon/autograd/function.h"

namespace gaccd {

class Add : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "add"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Renames a value: used if the gradient of an input is that of the output.
class Identity : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "identity"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[0]};
  }
  [[nodiscard]] bool is_view() const override { return true; }
};

// g = a, or g += a: adds a value (f32, bf16 or fp16) to the f32 gradient of a parameter.
class Accumulate : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "accumulate"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }
};

// Zeros of these shapes; adds nothing if it accumulates. Replaces a node without elements
// (passes.h).
class Zeros : public Function {
 public:
  explicit Zeros(std::vector<ValueSpec> outputs) : outputs_(std::move(outputs)) {}
  [[nodiscard]] std::string_view name() const override { return "zeros"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> /*inputs*/) const override {
    return outputs_;
  }
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }

 private:
  std::vector<ValueSpec> outputs_;
};

}  // namespace gaccd
