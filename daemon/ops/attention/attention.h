// Attention: multi-head scaled dot-product attention within sequences of T rows each.
// q, k, v and y are [B T, H D], H heads of D values each. Of one head of one sequence, with
// s = 1 / sqrt(D):
//   S[i, j] = s q[i] . k[j] for the keys j that row i sees: j < L, and j <= i where it is causal
//   P = softmax of the rows of S,  y[i] = sum_j P[i, j] v[j],  lse[i] = log sum_j exp S[i, j]
// L is the length of the sequence, T where no lengths are given; nothing reads k and v from L on.
// Rows from L on give y = 0 and take no gradient; with `all_rows` they see the keys as others do
// (all give 0 where L = 0), as a mask of keys in PyTorch.
// Backward, P again from S and lse, delta[i] = dy[i] . y[i]:
//   dv[j] = sum_i P[i, j] dy[i],  dS[i, j] = P[i, j] (dy[i] . v[j] - delta[i])
//   dq[i] = s sum_j dS[i, j] k[j],  dk[j] = s sum_i dS[i, j] q[i]
// S and P exist for a tile of rows and keys at a time only.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// By the number of inputs of Attention.
[[nodiscard]] constexpr bool IsPackedAttention(std::size_t inputs) { return inputs <= 2; }
[[nodiscard]] constexpr bool HasAttentionLengths(std::size_t inputs) { return inputs % 2 == 0; }

// No wider head is computed on a GPU.
inline constexpr std::int64_t kMaxAttentionWidth = 128;

struct AttentionOptions {
  std::int64_t heads = 1;   // H
  std::int64_t length = 1;  // T
  bool causal = false;
  bool all_rows = false;
  // On the CPU, of f32 inputs: what is multiplied, q, k, v, P, dy and dS, is rounded to bf16; sums
  // and all else are f32.
  bool round_to_bf16 = false;
};

// On a GPU bf16 may be computed by a library (device/cuda/sdpa.h), to the accuracy of bf16: k and v
// from L on have to be finite then.
//
// Inputs: q, k, v, f32, bf16 or fp16, or one qkv [B T, 3 H D] whose rows are [q | k | v]; and, if
// sequences end before T, lengths i32 [B] in [0, T] (others count as the nearest of these).
// Outputs: y, of the type of q; lse f32 [B, H, T], without gradient.
class Attention : public Function {
 public:
  explicit Attention(const AttentionOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "attention"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] const AttentionOptions& options() const { return options_; }

 private:
  AttentionOptions options_;
};

// Inputs: dy, y, lse and those of Attention. Outputs: dq, dk, dv, or dqkv; with `to_bf16`, on the
// CPU, of f32 inputs and in bf16.
class AttentionGradient : public Function {
 public:
  explicit AttentionGradient(const AttentionOptions& options, bool to_bf16 = false)
      : options_(options), to_bf16_(to_bf16) {}

  [[nodiscard]] std::string_view name() const override { return "attention_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] const AttentionOptions& options() const { return options_; }

 private:
  AttentionOptions options_;
  bool to_bf16_;
};

// kConfig: Attention of these inputs has wider heads than its kernel for the GPU takes.
Status CheckAttentionOnGpu(const Function& function, std::span<const ValueSpec> inputs);

KernelResult MakeAttentionCpu(const KernelRequest& request);
KernelResult MakeAttentionGradientCpu(const KernelRequest& request);
KernelResult MakeAttentionCuda(const CudaRequest& request);
KernelResult MakeAttentionGradientCuda(const CudaRequest& request);
inline constexpr FunctionRow kAttentionRows[] = {
    {"attention", MakeAttentionCpu, MakeAttentionCuda, nullptr, CheckAttentionOnGpu},
    {"attention_gradient", MakesBf16(MakeAttentionGradientCpu), MakeAttentionGradientCuda},
};

}  // namespace gaccd
