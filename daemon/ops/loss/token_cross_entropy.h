// Softmax cross-entropy with one label per sample or token, ignored labels, label smoothing and
// weights, as PyTorch's cross_entropy(ignore_index, label_smoothing).  logits z [N, C], labels t
// [N], weights w [N] or 1:
//   loss_sum = sum_n w[n] ((1 - e) (lse[n] - z[n, t[n]]) + e / C sum_c (lse[n] - z[n, c]))
//   weight_sum = sum_n w[n],  lse[n] = log sum_c exp z[n, c]
// over the n whose label is not ignored. The loss is divided by weight_sum, summed over the update:
// the gradient of loss_sum is 1 / that sum. Backward:
//   dz[n, c] = w[n] (exp(z[n, c] - lse[n]) - (1 - e) [c = t[n]] - e / C) dloss, 0 if ignored
// A label that is neither ignored nor in [0, C) makes the loss NaN; nothing outside z is read.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

class Fuser;

struct TokenCrossEntropyOptions {
  std::int32_t ignored_label = -100;
  float label_smoothing = 0;  // e, in [0, 1]
};

// Inputs: logits f32, bf16 or fp16, labels i32 and optional weights f32. Outputs: loss_sum and
// weight_sum f64 [1]; statistics f32 [N, 2]: for every row the largest logit m and the sum of exp(z
// - m). Only loss_sum has a gradient.
class TokenCrossEntropy : public Function {
 public:
  explicit TokenCrossEntropy(const TokenCrossEntropyOptions& options = {}) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "token_cross_entropy"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] const TokenCrossEntropyOptions& options() const { return options_; }

 private:
  TokenCrossEntropyOptions options_;
};

// Inputs: logits, labels, statistics, dloss f32 [1] and optional weights. Output: dlogits.
class TokenCrossEntropyGradient : public Function {
 public:
  explicit TokenCrossEntropyGradient(const TokenCrossEntropyOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "token_cross_entropy_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] const TokenCrossEntropyOptions& options() const { return options_; }

 private:
  TokenCrossEntropyOptions options_;
};

// Loss and gradient in one pass over the logits, for the GPU. Inputs: logits, labels, dloss f32 [1]
// and optional weights. Outputs: dlogits, loss_sum, weight_sum.
class TokenCrossEntropyFused : public Function {
 public:
  explicit TokenCrossEntropyFused(const TokenCrossEntropyOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "token_cross_entropy_fused"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] const TokenCrossEntropyOptions& options() const { return options_; }

 private:
  TokenCrossEntropyOptions options_;
};

// Without statistics, for the GPU. Inputs: those of TokenCrossEntropy. Outputs: loss_sum,
// weight_sum.
class TokenCrossEntropyLoss : public Function {
 public:
  explicit TokenCrossEntropyLoss(const TokenCrossEntropyOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "token_cross_entropy_loss"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] const TokenCrossEntropyOptions& options() const { return options_; }

 private:
  TokenCrossEntropyOptions options_;
};

// Merges the loss and its gradient into one pass, and drops statistics that no node reads. The GPU
// has no kernels for other cases.
void FuseTokenCrossEntropy(Fuser& fuser);

CpuMake MakeTokenCrossEntropyCpu, MakeTokenCrossEntropyGradientCpu;
CudaMake MakeTokenCrossEntropyFusedCuda, MakeTokenCrossEntropyLossCuda;
inline constexpr FunctionRow kTokenCrossEntropyRows[] = {
    {"token_cross_entropy", MakeTokenCrossEntropyCpu, nullptr},
    {"token_cross_entropy_gradient", MakeTokenCrossEntropyGradientCpu, nullptr},
    {"token_cross_entropy_fused", nullptr, MakeTokenCrossEntropyFusedCuda, FuseTokenCrossEntropy,
     nullptr, kFirstOfBoth},
    {"token_cross_entropy_loss", nullptr, MakeTokenCrossEntropyLossCuda, nullptr, nullptr,
     kFirstInput},
};

}  // namespace gaccd
