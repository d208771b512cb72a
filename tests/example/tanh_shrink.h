// A layer in one file: y = x - tanh(x), of functions that exist.
#pragma once

#include <memory>

#include "daemon/autograd/add.h"
#include "daemon/nn/module.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/multiply.h"

namespace gaccd::nn {

class TanhShrink final : public Layer {
 public:
  explicit TanhShrink(const Scope& scope) : Layer(scope) {}
  ValueId operator()(Recorder& recorder, ValueId x) const override {
    const ValueId tanh =
        Apply(recorder, std::make_shared<gaccd::Activation>(ActivationKind::kTanh), {x});
    const ValueId minus = Apply(recorder, std::make_shared<Multiply>(-1), {tanh});
    return Apply(recorder, std::make_shared<Add>(), {x, minus});
  }
};

}  // namespace gaccd::nn
