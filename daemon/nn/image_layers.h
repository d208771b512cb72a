// Layers of images.
#pragma once

#include <optional>

#include "daemon/nn/module.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/image/pool2d.h"

namespace gaccd::nn {

// Image layers without matrix products: pooling, GroupNorm, and conversion of plain features to
// images.

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

// nn::Conv2d, as in PyTorch. The function is in ops/image/conv2d.h.
struct Conv2dModuleOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  ImagePair kernel{1, 1};
  Conv2dOptions convolution = {};
  bool bias = true;
  // Standard deviation of the normally distributed initial weight; default: PyTorch's nn.Conv2d.
  std::optional<double> deviation = {};
};

class Conv2d final : public Layer {
 public:
  // Declares weight [out, in / groups, KH, KW] and bias [out], both uniform in +-1/sqrt(fan in),
  // fan in = in / groups KH KW, unless a deviation is given.
  Conv2d(const Scope& scope, const Conv2dModuleOptions& options);

  // Images with `in` channels -> images with `out` channels
  ValueId operator()(Recorder& recorder, ValueId input) const override;
  [[nodiscard]] std::optional<Widths> widths() const override {
    return Widths{options_.in, options_.out};
  }

 private:
  Conv2dModuleOptions options_;
  ParameterIndex weight_;
  std::optional<ParameterIndex> bias_;
};

}  // namespace gaccd::nn
