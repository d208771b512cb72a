// nn::BatchNorm of images or of vectors, by channel: weight, at first 1, and bias, at first 0;
// buffers running_mean, at first 0, running_var, at first 1, and num_batches_tracked, the updates
// so far. The functions are in ops/norm/batch_norm.h.
#pragma once

#include "daemon/nn/module.h"
#include "daemon/ops/norm/batch_norm.h"

namespace gaccd::nn {

struct BatchNormOptions {
  std::int64_t channels = 0;
  double epsilon = 1e-5;
  double momentum = 0.1;
  // In training: of the whole update, of runs of its samples, of each micro-batch, or the running
  // ones as they are.
  NormGroup group = NormGroup::kUpdate;
  std::int64_t run_size = 0;  // of kRuns
};

struct BatchNormParameters {
  ParameterIndex weight = 0;
  ParameterIndex bias = 0;
  ParameterIndex mean = 0;
  ParameterIndex variance = 0;
  ParameterIndex updates = 0;
};

class BatchNorm final : public Layer {
 public:
  BatchNorm(const Scope& scope, const BatchNormOptions& options);
  // With parameters and buffers that are declared already.
  BatchNorm(const Scope& scope, const BatchNormOptions& options,
            const BatchNormParameters& declared)
      : Layer(scope), options_(options), declared_(declared) {}

  // [M, channels] or images of them -> the same
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  // The sums that normalise `input` in training.
  ValueId GroupSums(Recorder& recorder, ValueId input, const NormRuns& runs) const;

  BatchNormOptions options_;
  BatchNormParameters declared_;
};

}  // namespace gaccd::nn
