// Layers without parameters: one function each.
#pragma once

#include "daemon/nn/module.h"

namespace gaccd::nn {

// [M, a, b, ...] -> [M, a*b*...]
class Flatten final : public Layer {
 public:
  explicit Flatten(const Scope& scope) : Layer(scope) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;
};

class Relu final : public Layer {
 public:
  explicit Relu(const Scope& scope) : Layer(scope) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;
};

}  // namespace gaccd::nn
