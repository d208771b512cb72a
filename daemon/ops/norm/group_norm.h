// GroupNorm of images, as in PyTorch:  x [N, H, W, C], channels last, gamma [C], beta [C]
// The C channels are divided into `groups` groups of C / groups consecutive channels. Mean and
// variance of sample n and group g are those of its m = H W C / groups values:
//   mean = sum x / m,  rstd = 1 / sqrt(sum (x - mean)^2 / m + eps),  h = (x - mean) rstd
//   y = h gamma + beta
// Backward, with d = dy gamma, and sums over the sample and group of a value:
//   dx = rstd (d - sum d / m - h sum (d h) / m)
//   dgamma += sum_{n, h, w} dy h,  dbeta += sum_{n, h, w} dy
// mean and rstd are kept, f32 [N, groups]. x, y and their gradients are f32, bf16 or fp16, on the
// CPU f32; the rest is f32. Samples are independent of each other.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Inputs: x, gamma, beta. Outputs: y, mean, rstd; only y has a gradient.
class GroupNorm : public Function {
 public:
  explicit GroupNorm(std::int64_t groups, float eps = 1e-5F) : groups_(groups), eps_(eps) {}

  [[nodiscard]] std::string_view name() const override { return "group_norm"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] float eps() const { return eps_; }

 private:
  std::int64_t groups_;
  float eps_;
};

// Inputs: dy, x, gamma, mean, rstd. Outputs: dx, dgamma, dbeta.
class GroupNormGradient : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "group_norm_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }
  [[nodiscard]] bool can_accumulate(std::size_t output) const override { return output > 0; }
};

CpuMake MakeGroupNormCpu, MakeGroupNormGradientCpu;
CudaMake MakeGroupNormCuda, MakeGroupNormGradientCuda;
inline constexpr FunctionRow kGroupNormRows[] = {
    {"group_norm", MakeGroupNormCpu, MakeGroupNormCuda},
    {"group_norm_gradient", MakeGroupNormGradientCpu, MakeGroupNormGradientCuda},
};

}  // namespace gaccd
