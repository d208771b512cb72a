// A product of linear.h fused with GELU of activations.h.
//
// On the CPU the derivative is kept in place of pre:
//   linear_gelu(x, W, b)                       pre = x W^T + b, y = gelu(pre), slope = gelu'(pre)
//   linear_input_gradient_times(dy, W, slope)  dpre = (dy W) * slope
// with gelu or gelu_tanh. With the same rounding as the separate functions; x, dy, y and dpre may
// be bf16, slope is f32.
//
// On the GPU:
//   linear_gelu_tanh(x, W, b)                      pre = x W^T + b, y = gelu_tanh(pre)
//   linear_gelu_tanh_input_gradient(dy, W, pre)    dpre = (dy W) * gelu_tanh'(pre)
// For two layers, y = gelu_tanh(x W^T + b) and z = y V^T, the second function computes the gradient
// from z to pre: its W is V. Shapes, types and weight orders are those of linear.h. pre is kept
// rounded to the type of y, and the gradient is evaluated there.
#pragma once

#include "daemon/ops/function_row.h"
#include "daemon/ops/pointwise/elementwise.h"
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

// Inputs: x, W and optionally b. Outputs: y, slope.
class LinearGelu : public Function {
 public:
  // REQUIRES: `kind` is kGelu or kGeluTanh.
  LinearGelu(const Linear& linear, ActivationKind kind, bool to_bf16)
      : linear_(linear), kind_(kind), to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "linear_gelu"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override {
    return linear_.ProductFlops(inputs);
  }

  [[nodiscard]] const Linear& linear() const { return linear_; }
  [[nodiscard]] ActivationKind kind() const { return kind_; }

 private:
  Linear linear_;
  ActivationKind kind_;
  bool to_bf16_;
};

// Inputs: dy, W, slope. Output: dpre.
class LinearInputGradientTimes : public Function {
 public:
  LinearInputGradientTimes(const LinearInputGradient& linear, bool to_bf16)
      : linear_(linear), to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "linear_input_gradient_times"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override {
    return linear_.ProductFlops(inputs.first(2));
  }

  [[nodiscard]] const LinearInputGradient& linear() const { return linear_; }

 private:
  LinearInputGradient linear_;
  bool to_bf16_;
};

// For the CPU, where only the activation and its gradient read pre, and the gradient dy of y is
// computed by linear_input_gradient:
//   linear(x, W, b) -> pre, gelu(pre) -> y                     => linear_gelu
//   linear_input_gradient(dz, V) -> dy, gelu_gradient(dy, pre) => linear_input_gradient_times
void FuseLinearGeluSlope(Fuser& fuser);

// For the GPU: linear(x, W, b) -> pre, gelu_tanh(pre) -> y => linear_gelu_tanh; keeps pre if
// another node reads it.
void FuseLinearGeluTanh(Fuser& fuser);
// linear_input_gradient(dz, V) -> dy, whose only reader is gelu_tanh_gradient(dy, pre)
//   => linear_gelu_tanh_input_gradient(dz, V, pre).
void FuseLinearGeluTanhInputGradient(Fuser& fuser);

CpuMakeIn MakeLinearGeluCpu, MakeLinearInputGradientTimesCpu;
CudaMake MakeLinearGeluTanhCuda, MakeLinearGeluTanhInputGradientCuda;
inline constexpr FunctionRow kLinearGeluRows[] = {
    {"linear_gelu", AcceptsBf16(MakesBf16(MakeLinearGeluCpu)), nullptr},
    {"linear_input_gradient_times", AcceptsBf16(MakesBf16(MakeLinearInputGradientTimesCpu)),
     nullptr},
    {"linear_gelu_tanh", nullptr, MakeLinearGeluTanhCuda, FuseLinearGeluTanh},
    {"linear_gelu_tanh_input_gradient", nullptr, MakeLinearGeluTanhInputGradientCuda,
     FuseLinearGeluTanhInputGradient},
};

}  // namespace gaccd
