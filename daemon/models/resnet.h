// ResNet (He et al. 2015), version 1.5: the stride of a bottleneck is in its 3x3 convolution.
// Input: images, "features"; prediction: logits of the classes. Parameters and buffers have the
// names, shapes and initial values of torchvision's resnet18, resnet34 and resnet50.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "daemon/models/network.h"
#include "daemon/nn/image_layers.h"
#include "daemon/nn/linear.h"
#include "daemon/nn/simple_layers.h"

namespace gaccd {

// A convolution without bias, and the norm after it.
class ConvNorm final : public nn::Module {
 public:
  struct Size {
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::int64_t kernel = 1;
    std::int64_t stride = 1;
  };
  // Separate scopes: "conv1" and "bn1", or "downsample.0" and "downsample.1".
  ConvNorm(const nn::Scope& conv, const nn::Scope& norm, const ResnetSpec& spec, const Size& size);
  ValueId operator()(nn::Recorder& recorder, ValueId x) const {
    return (*norm_)(recorder, conv_(recorder, x));
  }

 private:
  nn::Conv2d conv_;
  std::shared_ptr<const nn::Layer> norm_;
};

// Two 3x3 convolutions, or a bottleneck: 1x1, 3x3 and 1x1 to 4 times the width. The input is added
// to their output, through a 1x1 convolution if the shapes differ.
class ResnetBlockModule final : public nn::Module {
 public:
  ResnetBlockModule(const nn::Scope& scope, const ResnetSpec& spec, std::int64_t in,
                    std::int64_t width, std::int64_t stride);
  ValueId operator()(nn::Recorder& recorder, ValueId x) const;

 private:
  std::vector<ConvNorm> convolutions_;
  std::optional<ConvNorm> downsample_;
  nn::Relu relu_;
  nn::AddResidual add_;
};

class Resnet final : public Network {
 public:
  explicit Resnet(const ResnetSpec& spec);

  ValueId Record(nn::Recorder& recorder) const override;
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] NetworkFields fields() const override {
    return {.outputs = "model.resnet.classes"};
  }
  [[nodiscard]] std::string Describe() const override;

 private:
  ResnetSpec spec_;
  ConvNorm stem_;
  nn::Relu relu_;
  nn::Pool2d max_pool_;
  std::vector<ResnetBlockModule> blocks_;
  nn::Pool2d mean_;
  nn::Flatten flatten_;
  nn::Linear fc_;
};

}  // namespace gaccd
