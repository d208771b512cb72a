// Relu: y = max(x, 0), elementwise. dx = 0 where y <= 0, else dy (so x itself need not be kept).
// A NaN stays one, as in PyTorch, and so reaches the loss. Only where it is folded into a product
// of the GPU a NaN may become 0 (matmul_spec.h): never in an evaluation, which folds nothing; in
// training values that are not finite show in the gradient, or in the parameters (UpdateControl).
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Relu : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "relu"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};

// Inputs: dy, y, and where its sum with dy was a node of its own (FuseReluGradients), another part
// of dy. On the CPU y may be bf16 where dy is f32, and dx, `to_bf16`, too.
class ReluGradient : public Function {
 public:
  explicit ReluGradient(bool to_bf16 = false) : to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "relu_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return !to_bf16_; }

 private:
  bool to_bf16_;
};

// The gradient of a relu takes both values of a sum that only it reads.
void FuseReluGradients(Fuser& fuser);

KernelResult MakeReluCpu(const KernelRequest& request);
KernelResult MakeReluGradientCpu(const KernelRequest& request);
KernelResult MakeReluCuda(const CudaRequest& request);
KernelResult MakeReluGradientCuda(const CudaRequest& request);
inline constexpr FunctionRow kReluRows[] = {
    {"relu", MakeReluCpu, MakeReluCuda},
    {"relu_gradient", TakesBf16(MakesBf16(MakeReluGradientCpu)), MakeReluGradientCuda,
     FuseReluGradients},
};

}  // namespace gaccd
