// Attention: multi-head scaled dot-product attention within sequences of T rows each. q, k, v and y
// are [B T, H D], H heads of D values each. For one head of one sequence, with s = 1 / sqrt(D):
//   S[i, j] = s q[i] . k[j] for the keys j that row i attends to: j < L, and j <= i if causal
//   P = softmax of the rows of S,  y[i] = sum_j P[i, j] v[j],  lse[i] = log sum_j exp S[i, j]
// L is the length of the sequence, T without lengths; k and v are not read from L on. Rows from L
// on have y = 0 and no gradient; with `all_rows` they attend to the keys like other rows (all give
// 0 if L = 0), as with a key mask in PyTorch.
// Backward, with P recomputed from S and lse, and delta[i] = dy[i] . y[i]:
//   dv[j] = sum_i P[i, j] dy[i],  dS[i, j] = P[i, j] (dy[i] . v[j] - delta[i])
//   dq[i] = s sum_j dS[i, j] k[j],  dk[j] = s sum_i dS[i, j] q[i]
// S and P are only computed for one tile of rows and keys at a time.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

// Derived from the number of inputs of Attention.
[[nodiscard]] constexpr bool IsPackedAttention(std::size_t inputs) { return inputs <= 2; }
[[nodiscard]] constexpr bool HasAttentionLengths(std::size_t inputs) { return inputs % 2 == 0; }

// Maximum width of a head on a GPU.
inline constexpr std::int64_t kMaxAttentionWidth = 128;

struct AttentionOptions {
  std::int64_t heads = 1;   // H
  std::int64_t length = 1;  // T
  bool causal = false;
  bool all_rows = false;
  // CPU with f32 inputs: operands of products (q, k, v, P, dy, dS) are rounded to bf16; sums and
  // everything else are f32.
  bool round_to_bf16 = false;
};

// On a GPU, bf16 may be computed by a library (device/cuda/dnn_library.h), to the accuracy of bf16;
// k and v from L on must then be finite.
//
// Inputs: q, k, v, f32, bf16 or fp16, or one qkv [B T, 3 H D] whose rows are [q | k | v]; and, if
// sequences are shorter than T, lengths i32 [B] in [0, T] (other values are clamped). Outputs: y,
// of the type of q; lse f32 [B, H, T], without gradient.
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

// Inputs: dy, y, lse and those of Attention. Outputs: dq, dk, dv, or dqkv; with `to_bf16` (CPU, f32
// inputs) in bf16.
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

// kConfig: the heads of Attention with these inputs are too wide for the GPU kernel.
Status CheckAttentionOnGpu(const Function& function, std::span<const ValueSpec> inputs);

CpuMakeIn MakeAttentionCpu, MakeAttentionGradientCpu;
CudaMake MakeAttentionCuda, MakeAttentionGradientCuda;
inline constexpr FunctionRow kAttentionRows[] = {
    {"attention", MakeAttentionCpu, MakeAttentionCuda, nullptr, CheckAttentionOnGpu},
    {"attention_gradient", MakesBf16(MakeAttentionGradientCpu), MakeAttentionGradientCuda},
};

}  // namespace gaccd
