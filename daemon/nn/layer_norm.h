// nn::LayerNorm over the last dimension: weight [width] (initially 1), bias [width] (0). The
// function is in ops/norm/layer_norm.h.
#pragma once

#include "daemon/nn/module.h"

namespace gaccd::nn {

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

}  // namespace gaccd::nn
