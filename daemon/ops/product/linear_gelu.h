// A product of linear.h fused with gelu_tanh of activations.h, for the GPU:
//   linear_gelu_tanh(x, W, b)                      pre = x W^T + b, y = gelu_tanh(pre)
//   linear_gelu_tanh_input_gradient(dy, W, pre)    dpre = (dy W) * gelu_tanh'(pre)
// For two layers, y = gelu_tanh(x W^T + b) and z = y V^T, the second function computes the gradient
// from z to pre: its W is V. Shapes, types and weight orders are those of linear.h. pre is kept
// rounded to the type of y, and the gradient is evaluated there.
#pragma once

#include "daemon/ops/function_row.h"
#include "daemon/ops/product/linear.h"

namespace gaccd {

// Inputs: x, W and optionally b. Outputs: y and, with `keeps`, pre.
class LinearGeluTanh : public Function {
 public:
  LinearGeluTanh(WeightOrder order, bool keeps) : linear_(false, order), keeps_(keeps) {}

  [[nodiscard]] std::string_view name() const override { return "linear_gelu_tanh"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override {
    return linear_.ProductFlops(inputs);
  }

  [[nodiscard]] const Linear& linear() const { return linear_; }
  [[nodiscard]] bool keeps() const { return keeps_; }

 private:
  Linear linear_;
  bool keeps_;
};

// Inputs: dy, W, pre. Output: dpre.
class LinearGeluTanhInputGradient : public Function {
 public:
  explicit LinearGeluTanhInputGradient(WeightOrder order) : linear_(order) {}

  [[nodiscard]] std::string_view name() const override { return "linear_gelu_tanh_input_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override {
    return linear_.ProductFlops(inputs.first(2));
  }

  [[nodiscard]] const LinearInputGradient& linear() const { return linear_; }

 private:
  LinearInputGradient linear_;
};

// linear(x, W, b) -> pre, gelu_tanh(pre) -> y => linear_gelu_tanh; keeps pre if another node reads
// it.
void FuseLinearGeluTanh(Fuser& fuser);
// linear_input_gradient(dz, V) -> dy, whose only reader is gelu_tanh_gradient(dy, pre)
//   => linear_gelu_tanh_input_gradient(dz, V, pre).
void FuseLinearGeluTanhInputGradient(Fuser& fuser);

CudaMake MakeLinearGeluTanhCuda, MakeLinearGeluTanhInputGradientCuda;
inline constexpr FunctionRow kLinearGeluRows[] = {
    {"linear_gelu_tanh", nullptr, MakeLinearGeluTanhCuda, FuseLinearGeluTanh},
    {"linear_gelu_tanh_input_gradient", nullptr, MakeLinearGeluTanhInputGradientCuda,
     FuseLinearGeluTanhInputGradient},
};

}  // namespace gaccd
