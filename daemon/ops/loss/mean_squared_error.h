// Mean squared error of y [M, N] against t [M, N]: the mean over the N outputs of a sample, summed
// over samples:  loss_sum = sum_m 1/N sum_n (y - t)^2,  dy = 2/N (y - t) dloss.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Fuser;

// Inputs: y f32, bf16 or fp16 [M, N]; t f32 [M, N], which has no gradient. Output: loss_sum f64
// [1].
class MeanSquaredError : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "mean_squared_error"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
};

// Inputs: y, t, dloss f32 [1]. Output: dy, of the type of y.
class MeanSquaredErrorGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "mean_squared_error_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
};

// Both in one pass, for the GPU. Inputs: y, t, dloss f32 [1]. Outputs: dy, loss_sum f64 [1].
class MeanSquaredErrorFused : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "mean_squared_error_fused"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
};
// Merges the loss and its gradient into one pass.
void FuseMeanSquaredError(Fuser& fuser);

CpuMake MakeMeanSquaredErrorCpu, MakeMeanSquaredErrorGradientCpu;
CudaMake MakeMeanSquaredErrorCuda;
inline constexpr FunctionRow kMeanSquaredErrorRows[] = {
    {"mean_squared_error", MakeMeanSquaredErrorCpu, MakeMeanSquaredErrorCuda},
    {"mean_squared_error_gradient", MakeMeanSquaredErrorGradientCpu, MakeMeanSquaredErrorCuda},
    {"mean_squared_error_fused", nullptr, MakeMeanSquaredErrorCuda, FuseMeanSquaredError},
};

}  // namespace gaccd
