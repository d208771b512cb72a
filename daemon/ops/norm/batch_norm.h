// Batch normalisation by channel, as in PyTorch:  x [..., C], images channels last
//   S1 = sum x, S2 = sum x^2, n = count, by channel, over a group of samples
//   mean = S1 / n,  var = S2 / n - mean^2,  rstd = 1 / sqrt(var + eps),  h = (x - mean) rstd
//   y = h gamma + beta
// Backward, with db = sum dy and dg = sum dy h over the same group:
//   dx = gamma rstd (dy - db / n - h dg / n)
//   dgamma += dg and dbeta += db of the own samples only, as every parameter gradient
// Fused with the following operations (FuseBatchNorms):
//   y = relu(h gamma + beta + residual);  without a residual, dy counts as 0 where
//   h gamma + beta <= 0, which is recomputed, so that y need not be kept
// The group is all samples of an update on all ranks (UpdateSum), or a run of consecutive samples
// of the update, or the micro-batch, or there is none: mean and var are given, and dx = gamma rstd
// dy.
//
// Sums are f64 of f32 values, so that S2 / n - mean^2 has 5 digits if |mean| is 1e5 deviations. x,
// y and their gradients are f32, on a GPU also bf16 or fp16; on the CPU only y and dx may be bf16
// (`to_bf16`). Layout of the sums, f64 [2 C + 1]: S1, S2, n; of db and dg, f64 [2 C]. With runs:
// [runs, 2 C + 1] and [runs, 2 C], zero for runs without samples in the micro-batch; the last input
// of each function is then the position of its first sample in the update, i64 [1].
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/tensor/host_device.h"

namespace gaccd {

// Every `size` consecutive samples of the update are a group, wherever they are computed; the last
// group may be smaller.
struct NormRuns {
  std::int64_t size = 0;     // 0: no runs
  std::int64_t count = 1;    // number of runs in the largest update
  std::int64_t samples = 0;  // number of samples of the micro-batch
};

// x -> the sums of these samples. No gradient: BatchNorm has it.
class ChannelSums : public Function {
 public:
  explicit ChannelSums(const NormRuns& runs = {}) : runs_(runs) {}
  [[nodiscard]] const NormRuns& runs() const { return runs_; }
  [[nodiscard]] std::string_view name() const override { return "channel_sums"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

 private:
  NormRuns runs_;
};

// mean, var, f32 [C] -> sums with this mean and variance.
class FixedSums : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "fixed_sums"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
};

// f64 [n] -> its sum over all micro-batches of an update on all ranks. A graph is cut here: the
// caller that runs it writes the output (Executor::update_sum()).
class UpdateSum : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "update_sum"; }
  [[nodiscard]] bool is_update_sum() const override { return true; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
};

enum class NormGroup : std::uint8_t { kUpdate, kRuns, kMicroBatch, kNone };

// The sums of a micro-batch that is a group -> its contribution to the running statistics: S1 and n
// var n / (n - 1), f32 [C], and n, f32 []. No gradient.
//
// The outputs accumulate over the update like gradients of the layer's buffers, which the optimizer
// does not change: so they are reduced with the gradients, and saved inside an update.
class MicroStatistics : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "micro_statistics"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t /*output*/) const override { return true; }
};

// Operations fused after a batch norm.
struct NormEnd {
  bool adds = false;  // adds the residual
  bool relu = false;
  bool to_bf16 = false;
};

// Inputs: x, sums, gamma, beta and, with `adds`, the residual. Output: y.
class BatchNorm : public Function {
 public:
  BatchNorm(float eps, NormGroup group, const NormRuns& runs = {}, NormEnd end = {})
      : eps_(eps), group_(group), runs_(runs), end_(end) {}

  [[nodiscard]] std::string_view name() const override { return "batch_norm"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  // kInternal with a residual or a relu: gradients are recorded before functions are fused.
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return !end_.to_bf16; }
  [[nodiscard]] float eps() const { return eps_; }
  [[nodiscard]] const NormRuns& runs() const { return runs_; }
  [[nodiscard]] NormEnd end() const { return end_; }
  [[nodiscard]] BatchNorm With(NormEnd end) const { return {eps_, group_, runs_, end}; }

 private:
  float eps_;
  NormGroup group_;
  NormRuns runs_;
  NormEnd end_;
};

// Inputs: dy, x, sums and, with `relu`, gamma and beta. Outputs: db and dg of these samples, f64 [2
// C]; dgamma, dbeta.
class BatchNormGradientSums : public Function {
 public:
  explicit BatchNormGradientSums(float eps, const NormRuns& runs = {}, bool relu = false)
      : eps_(eps), runs_(runs), relu_(relu) {}
  [[nodiscard]] std::string_view name() const override { return "batch_norm_gradient_sums"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t output) const override { return output > 0; }
  [[nodiscard]] float eps() const { return eps_; }
  [[nodiscard]] const NormRuns& runs() const { return runs_; }
  [[nodiscard]] bool relu() const { return relu_; }

 private:
  float eps_;
  NormRuns runs_;
  bool relu_;
};

// Inputs: dy, x, sums, gamma; with `relu`, beta; if the statistics are those of the group, its db
// and dg. Output: dx.
class BatchNormInputGradient : public Function {
 public:
  explicit BatchNormInputGradient(float eps, const NormRuns& runs = {}, bool relu = false,
                                  bool to_bf16 = false)
      : eps_(eps), runs_(runs), relu_(relu), to_bf16_(to_bf16) {}
  [[nodiscard]] std::string_view name() const override { return "batch_norm_input_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_run_in_place() const override { return !to_bf16_; }
  [[nodiscard]] float eps() const { return eps_; }
  [[nodiscard]] const NormRuns& runs() const { return runs_; }
  [[nodiscard]] bool relu() const { return relu_; }
  // Index of db and dg among `count` inputs; 0: none.
  [[nodiscard]] std::size_t gradient_sums(std::size_t count) const {
    const std::size_t last = count - (runs_.size > 0 ? 2 : 1);
    return last > (relu_ ? 4U : 3U) ? last : 0;
  }

 private:
  float eps_;
  NormRuns runs_;
  bool relu_;
  bool to_bf16_;
};

// n / (n - 1) times the variance of a channel, from its sums; 0 for a single value.
[[nodiscard]] GACCD_HOST_DEVICE inline double UnbiasedVariance(double sum, double squares,
                                                               double n) {
  const double mean = sum / n;
  const double difference = squares / n - mean * mean;
  const double variance = difference < 0 ? 0 : difference;
  return n > 1 ? variance * n / (n - 1) : variance;
}

// Statistics that a layer keeps for evaluations. Once per update  mean = (1 - m) mean + m S1 / n,
// and the same for the variance with n / (n - 1) times that of the group, as in PyTorch; and the
// number of updates. With runs and micro-batches: the averages of both over them, weighted by n.
// Their sums have the sum of n var n / (n - 1) instead of S2, and are those of the update.
struct RunningStatistics {
  float* mean = nullptr;  // [channels]
  float* variance = nullptr;
  float* updates = nullptr;
};
void AddToRunning(NormGroup group, std::span<const double> sums, double momentum,
                  const RunningStatistics& running);
// Whether all values would be finite in f32.
[[nodiscard]] bool StaysFinite(NormGroup group, std::span<const double> sums, double momentum,
                               const RunningStatistics& running);

// The sums of runs -> such sums, f64 [2 C + 1].
void AddRuns(std::span<const double> runs, std::span<double> total);

// Fuses the relu of a batch norm, also of its sum with another value, and the gradient of a relu
// into those of its batch norm, if only they read it.
void FuseBatchNorms(Fuser& fuser);

CpuMake MakeBatchNormCpu;
CudaMake MakeChannelSumsCuda, MakeFixedSumsCuda, MakeMicroStatisticsCuda, MakeBatchNormCuda,
    MakeBatchNormGradientSumsCuda, MakeBatchNormInputGradientCuda;
inline constexpr FunctionRow kBatchNormRows[] = {
    {"channel_sums", MakeBatchNormCpu, MakeChannelSumsCuda},
    {"fixed_sums", MakeBatchNormCpu, MakeFixedSumsCuda},
    {"micro_statistics", MakeBatchNormCpu, MakeMicroStatisticsCuda},
    {"batch_norm", MakesBf16(MakeBatchNormCpu), MakeBatchNormCuda, FuseBatchNorms},
    {"batch_norm_gradient_sums", MakeBatchNormCpu, MakeBatchNormGradientSumsCuda},
    {"batch_norm_input_gradient", MakesBf16(MakeBatchNormCpu), MakeBatchNormInputGradientCuda},
};

}  // namespace gaccd
