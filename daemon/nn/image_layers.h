// Image layers without matrix products: pooling, GroupNorm, and conversion of plain features to
// images.
#pragma once

#include "daemon/nn/module.h"
#include "daemon/ops/image/pool2d.h"

namespace gaccd::nn {

// Reshapes the values of a sample to an image [channels, height, width].
class Unflatten final : public Layer {
 public:
  Unflatten(const Scope& scope, const Shape& image) : Layer(scope), image_(image) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  Shape image_;
};

// Images -> images: MaxPool2d, AvgPool2d, AdaptiveAvgPool2d.
class Pool2d final : public Layer {
 public:
  Pool2d(const Scope& scope, std::shared_ptr<const Function> function)
      : Layer(scope), function_(std::move(function)) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  std::shared_ptr<const Function> function_;
};

struct GroupNormOptions {
  std::int64_t groups = 1;
  std::int64_t channels = 0;
  double epsilon = 1e-5;
};

// Parameters weight [channels] (initially 1) and bias [channels] (0). The function:
// ops/norm/group_norm.h.
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
