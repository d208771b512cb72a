// Normalisation layers.
#pragma once

#include "daemon/nn/module.h"
#include "daemon/ops/norm/batch_norm.h"

namespace gaccd::nn {

// nn::LayerNorm over the last dimension: weight [width] (initially 1), bias [width] (0). The
// function is in ops/norm/layer_norm.h.
struct LayerNormOptions {
  std::int64_t width = 0;
  double epsilon = 1e-5;
};

class LayerNorm final : public Layer {
 public:
  LayerNorm(const Scope& scope, const LayerNormOptions& options);

  // [M, width] -> the same shape
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  double epsilon_;
  ParameterIndex weight_;
  ParameterIndex bias_;
};

// nn::BatchNorm of images or vectors, by channel. Parameters: weight (initially 1), bias (0).
// Buffers: running_mean (0), running_var (1), num_batches_tracked, the number of updates so far.
// The functions are in ops/norm/batch_norm.h.
struct BatchNormOptions {
  std::int64_t channels = 0;
  double epsilon = 1e-5;
  double momentum = 0.1;
  // Statistics in training: of the whole update, of runs of its samples, of each micro-batch, or
  // the running statistics unchanged.
  NormGroup group = NormGroup::kUpdate;
  std::int64_t run_size = 0;  // for kRuns
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
  // With parameters and buffers that are already declared.
  BatchNorm(const Scope& scope, const BatchNormOptions& options,
            const BatchNormParameters& declared)
      : Layer(scope), options_(options), declared_(declared) {}

  // [M, channels], or images with these channels -> the same shape
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  // The sums that normalise `input` in training.
  ValueId GroupSums(Recorder& recorder, ValueId input, const NormRuns& runs) const;

  BatchNormOptions options_;
  BatchNormParameters declared_;
};

// nn::GroupNorm of images. Parameters: weight [channels] (initially 1), bias [channels] (0). The
// function is in ops/norm/group_norm.h.
struct GroupNormOptions {
  std::int64_t groups = 1;
  std::int64_t channels = 0;
  double epsilon = 1e-5;
};

class GroupNorm final : public Layer {
 public:
  GroupNorm(const Scope& scope, const GroupNormOptions& options);
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  GroupNormOptions options_;
  ParameterIndex weight_;
  ParameterIndex bias_;
};

}  // namespace gaccd::nn
