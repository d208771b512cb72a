// Dropout: y = x m, m = 0 with probability p, else 1 / (1 - p); dx = dy m: the same function again.
// Of whole samples, m is one number for all elements of a sample: stochastic depth (Huang et al.
// 2016), where x is what a block adds.
// m of an element depends on the seed, the number of the update, the layer, the id of the sample
// and the place within the sample alone, with
// `whole_samples` (stochastic depth) not on the place, so that a sample is dropped as a whole: not
// on the rank, the micro-batch or a restart. Nothing is kept for the backward, which computes m
// again.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"

namespace gaccd {

struct DropoutOptions {
  float probability = 0;    // p, in [0, 1)
  std::uint64_t seed = 0;   // of the job
  std::uint64_t layer = 0;  // different for every dropout of a model
  bool whole_samples = false;
};

// Inputs: x f32, bf16 or fp16, whose first dimension is a multiple of the samples (rows of a sample
// lie together); sample_ids i64 [samples]; update i64 [1].
class Dropout : public Function {
 public:
  explicit Dropout(const DropoutOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "dropout"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;
  [[nodiscard]] bool can_run_in_place() const override { return true; }

  [[nodiscard]] const DropoutOptions& options() const { return options_; }

 private:
  DropoutOptions options_;
};

KernelResult MakeDropoutCpu(const KernelRequest& request);
KernelResult MakeDropoutCuda(const CudaRequest& request);
inline constexpr FunctionRow kDropoutRows[] = {
    {"dropout", MakeDropoutCpu, MakeDropoutCuda},
};

}  // namespace gaccd
