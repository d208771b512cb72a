// Linear: y = x W^T + b, then optionally ReLU.  x [M, in], W [out, in], b [out], y [M, out].
// WeightOrder::kInOut: W is [in, out] instead, y = x W + b, dx = dy W^T, dW += x^T dy. More leading
// dimensions: by views (reshape.h).
//
// With dy = d objective / d y:
//   dx = dy W            linear_input_gradient(dy, W)
//   dW += dy^T x         linear_weight_gradient(dy, x)
//   db += sum_m dy[m]    bias_gradient(dy)
//
// x, y and their gradients are f32, bf16 or fp16, all of the same type. W, b and their gradients
// are f32 in the graph; with bf16 or fp16 the kernels read the 16-bit copies of W and b.
//
// On the CPU also: x and dy bf16, and y and dx f32 (LinearSums::kF32), or y bf16 too. W is then
// read as its bf16 copy, b as f32.
#pragma once

#include <cstdint>

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Fuser;

enum class WeightOrder : std::uint8_t {
  kOutIn,  // PyTorch's nn.Linear
  kInOut,  // GPT-2's Conv1D
};

// The type of y and dx.
enum class LinearSums : std::uint8_t { kAsInput, kF32 };

class Linear : public Function {
 public:
  explicit Linear(bool relu = false, WeightOrder order = WeightOrder::kOutIn,
                  LinearSums sums = LinearSums::kAsInput)
      : relu_(relu), order_(order), sums_(sums) {}

  [[nodiscard]] std::string_view name() const override { return "linear"; }
  // Inputs: x, W and optionally b.
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;
  // REQUIRES: !relu(): gradients are recorded before functions are folded.
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] std::shared_ptr<const Function> FoldWith(const Function& next) const override;

  [[nodiscard]] bool relu() const { return relu_; }
  [[nodiscard]] WeightOrder order() const { return order_; }

 private:
  bool relu_;
  WeightOrder order_;
  LinearSums sums_;
};

class LinearInputGradient : public Function {
 public:
  explicit LinearInputGradient(WeightOrder order = WeightOrder::kOutIn,
                               LinearSums sums = LinearSums::kAsInput)
      : order_(order), sums_(sums) {}

  [[nodiscard]] std::string_view name() const override { return "linear_input_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] WeightOrder order() const { return order_; }

 private:
  WeightOrder order_;
  LinearSums sums_;
};

// dW = a^T b, with a = dy and b = x; kInOut: with a = x and b = dy.
class LinearWeightGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "linear_weight_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }
};

// Input: dy, or images [N, H, W, out] (conv2d.h).
class BiasGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "bias_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }
};

// Both gradients at once. Inputs: dy [M, out], x [M, in]. Outputs: dW [out, in], db [out].
// kInOut: inputs x, dy; outputs dW [in, out], db [out].
class LinearWeightBiasGradient : public Function {
 public:
  explicit LinearWeightBiasGradient(WeightOrder order = WeightOrder::kOutIn) : order_(order) {}

  [[nodiscard]] std::string_view name() const override { return "linear_weight_bias_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }

  // Index of dy among the inputs.
  [[nodiscard]] std::size_t place_of_dy() const { return order_ == WeightOrder::kInOut ? 1 : 0; }

 private:
  WeightOrder order_;
};
// linear_weight_gradient(dy, x) or (x, dy), bias_gradient(dy) -> one product with column sums.
void FuseLinearGradients(Fuser& fuser);

CpuMakeIn MakeLinearCpu, MakeLinearInputGradientCpu, MakeLinearWeightGradientCpu,
    MakeBiasGradientCpu, MakeLinearWeightBiasGradientCpu;
CudaMake MakeLinearCuda, MakeLinearInputGradientCuda, MakeLinearWeightGradientCuda,
    MakeBiasGradientCuda, MakeLinearWeightBiasGradientCuda;
inline constexpr FunctionRow kLinearRows[] = {
    {"linear", AcceptsBf16(MakesBf16(MakeLinearCpu)), MakeLinearCuda, nullptr, nullptr,
     kFirstOfBoth},
    {"linear_input_gradient", AcceptsBf16(MakeLinearInputGradientCpu), MakeLinearInputGradientCuda,
     nullptr, nullptr, kFirstInput},
    {"linear_weight_gradient", AcceptsBf16(MakeLinearWeightGradientCpu),
     MakeLinearWeightGradientCuda, nullptr, nullptr, kFirstInput},
    {"bias_gradient", AcceptsBf16(MakeBiasGradientCpu), MakeBiasGradientCuda, nullptr, nullptr,
     kFirstInput},
    {"linear_weight_bias_gradient", AcceptsBf16(MakeLinearWeightBiasGradientCpu),
     MakeLinearWeightBiasGradientCuda, FuseLinearGradients, nullptr, kFirstInput},
};

}  // namespace gaccd
