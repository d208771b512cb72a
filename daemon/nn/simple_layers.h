// Layers without parameters that record one function.
#pragma once

#include "daemon/nn/module.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/dropout.h"

namespace gaccd::nn {

// [B, a, b, ...] -> [B, a*b*...], images in the order [C, H, W]; embedding rows of sequences, [B T,
// width], become one row per sample: [B, T*width].
class Flatten final : public Layer {
 public:
  explicit Flatten(const Scope& scope) : Layer(scope) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;
};

// ActivationKind: ops/pointwise/elementwise.h.
class Activation final : public Layer {
 public:
  Activation(const Scope& scope, ActivationKind kind) : Layer(scope), kind_(kind) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  ActivationKind kind_;
};

class Relu final : public Layer {
 public:
  explicit Relu(const Scope& scope) : Layer(scope) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;
};

class LeakyRelu final : public Layer {
 public:
  LeakyRelu(const Scope& scope, double slope) : Layer(scope), slope_(slope) {}
  ValueId operator()(Recorder& recorder, ValueId input) const override;

 private:
  double slope_;
};

// Drops values in training only: [..] -> [..]
class Dropout final : public Layer {
 public:
  // probability: in [0, 1).
  Dropout(const Scope& scope, double probability)
      : Layer(scope), probability_(static_cast<float>(probability)) {}
  ValueId operator()(Recorder& recorder, ValueId x) const override {
    return recorder.Dropout(path(), {.probability = probability_}, x);
  }

 private:
  float probability_;
};

// Drops the output of a block for whole samples: stochastic depth, as timm's DropPath. Otherwise as
// Dropout.
class DropPath final : public Layer {
 public:
  DropPath(const Scope& scope, double probability)
      : Layer(scope), probability_(static_cast<float>(probability)) {}
  ValueId operator()(Recorder& recorder, ValueId x) const override {
    return recorder.Dropout(path(), {.probability = probability_, .whole_samples = true}, x);
  }

 private:
  float probability_;
};

// The first of every `length` rows: [B length, width] -> [B, width]
class FirstRow final : public Module {
 public:
  explicit FirstRow(const Scope& scope) : Module(scope) {}
  ValueId operator()(Recorder& recorder, ValueId x, std::int64_t length) const;
};

// a + b with the same shape.
class AddResidual final : public Module {
 public:
  explicit AddResidual(const Scope& scope) : Module(scope) {}
  ValueId operator()(Recorder& recorder, ValueId a, ValueId b) const;
};

}  // namespace gaccd::nn
