// LayerChain: a sequence of layers. LayerList: a network of them with input "features", or "tokens"
// if the first layer is an embedding.
#pragma once

#include <span>
#include <vector>

#include "daemon/models/network.h"
#include "daemon/nn/module.h"

namespace gaccd {

class LayerChain {
 public:
  LayerChain(const nn::Scope& scope, std::span<const LayerSpec> layers);

  ValueId operator()(nn::Recorder& recorder, ValueId value) const;
  // A sample with one tensor of this name.
  [[nodiscard]] SampleSpec ExampleSample(std::string name) const;
  [[nodiscard]] bool takes_tokens() const { return vocabulary_ > 0; }
  // Input width of the first and output width of the last layer that has widths; 1 if none has.
  [[nodiscard]] nn::Layer::Widths widths() const;
  // "784-512-10"
  [[nodiscard]] std::string Describe() const;

 private:
  [[nodiscard]] Shape ExampleFeatures(const nn::ParameterList& parameters,
                                      std::span<const LayerSpec> layers) const;

  std::vector<std::unique_ptr<const nn::Layer>> layers_;
  std::int64_t vocabulary_ = 0;  // 0: input is features
  std::int64_t tokens_ = 1;      // per sample, if a flatten layer determines their number
  Shape example_;                // shape of the features of a sample
};

class LayerList final : public Network {
 public:
  explicit LayerList(std::span<const LayerSpec> layers);

  ValueId Record(nn::Recorder& recorder) const override;
  [[nodiscard]] SampleSpec ExampleSample() const override;
  [[nodiscard]] std::string Describe() const override;

 private:
  [[nodiscard]] std::string_view input() const {
    return layers_.takes_tokens() ? "tokens" : "features";
  }

  LayerChain layers_;
};

// The layers of an mlp: flatten, fc1, relu1, fc2, ...
[[nodiscard]] std::vector<LayerSpec> MlpLayers(const MlpSpec& mlp);

}  // namespace gaccd
