// nn::Linear: y = x W^T + b, as PyTorch's nn.Linear: weight [out, in] and bias [out], both uniform
// in +-1/sqrt(in). The function is in ops/linear.h.
#pragma once

#include <optional>

#include "daemon/nn/module.h"

namespace gaccd::nn {

class Linear final : public Layer {
 public:
  struct Options {
    std::int64_t in = 0;
    std::int64_t out = 0;
    bool bias = true;
  };
  Linear(const Scope& scope, const Options& options);

  // [M, in] -> [M, out]
  ValueId operator()(Recorder& recorder, ValueId input) const override;
  [[nodiscard]] std::optional<Widths> widths() const override { return Widths{in_, out_}; }

 private:
  std::int64_t in_;
  std::int64_t out_;
  ParameterIndex weight_;
  std::optional<ParameterIndex> bias_;
};

}  // namespace gaccd::nn
