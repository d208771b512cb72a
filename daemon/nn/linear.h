// nn::Linear: y = x W^T + b. The function is in ops/product/linear.h.
#pragma once

#include <optional>

#include "daemon/nn/module.h"
#include "daemon/ops/product/linear.h"

namespace gaccd::nn {

struct LinearOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
  WeightOrder order = WeightOrder::kOutIn;  // kInOut: weight [in, out], as GPT-2's Conv1D
  // If set: standard deviation of the normally distributed initial weight; the bias starts as zero,
  // as in transformers. Default: both uniform in +-1/sqrt(in), as in PyTorch's nn.Linear.
  std::optional<double> deviation = {};
};

class Linear final : public Layer {
 public:
  // weight [out, in] and bias [out].
  Linear(const Scope& scope, const LinearOptions& options);

  // [M, in] -> [M, out]
  ValueId operator()(Recorder& recorder, ValueId input) const override;
  [[nodiscard]] std::optional<Widths> widths() const override {
    return Widths{options_.in, options_.out};
  }

 private:
  LinearOptions options_;
  ParameterIndex weight_;
  std::optional<ParameterIndex> bias_;
};

// y = x W^T with the weight of another module, [out, in]: the tied head of a language model.
class TiedLinear final : public Module {
 public:
  TiedLinear(const Scope& scope, ParameterIndex weight) : Module(scope), weight_(weight) {}
  // With its own bias [out], initially zero.
  TiedLinear(const Scope& scope, ParameterIndex weight, std::int64_t out);
  ValueId operator()(Recorder& recorder, ValueId input) const;

 private:
  ParameterIndex weight_;
  std::optional<ParameterIndex> bias_;
};

}  // namespace gaccd::nn
