// LeakyRelu: y = x where x > 0, else slope x, elementwise; dx = dy, or slope dy. A NaN stays NaN.
// Types f32, bf16 and fp16.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class LeakyRelu : public Function {
 public:
  explicit LeakyRelu(float slope = 0.01F) : slope_(slope) {}

  [[nodiscard]] std::string_view name() const override { return "leaky_relu"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] float slope() const { return slope_; }

 private:
  float slope_;
};

// Inputs: dy, x.
class LeakyReluGradient : public Function {
 public:
  explicit LeakyReluGradient(float slope) : slope_(slope) {}

  [[nodiscard]] std::string_view name() const override { return "leaky_relu_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] float slope() const { return slope_; }

 private:
  float slope_;
};

KernelResult MakeLeakyReluCpu(const KernelRequest& request);
KernelResult MakeLeakyReluGradientCpu(const KernelRequest& request);
KernelResult MakeLeakyReluCuda(const CudaRequest& request);
KernelResult MakeLeakyReluGradientCuda(const CudaRequest& request);
inline constexpr FunctionRow kLeakyReluRows[] = {
    {"leaky_relu", MakeLeakyReluCpu, MakeLeakyReluCuda},
    {"leaky_relu_gradient", MakeLeakyReluGradientCpu, MakeLeakyReluGradientCuda},
};

}  // namespace gaccd
