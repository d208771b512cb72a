#include "daemon/models/layer_list.h"

#include <algorithm>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/models/norm_group.h"
#include "daemon/nn/image_layers.h"
#include "daemon/nn/linear.h"
#include "daemon/nn/norms.h"
#include "daemon/nn/sequence_layers.h"
#include "daemon/nn/simple_layers.h"

namespace gaccd {
namespace {

// One value applies to height and width; without values `none`. CheckPairs() rejects more than two.
ImagePair ToPair(const std::vector<std::int64_t>& values, ImagePair none = {1, 1}) {
  if (values.empty()) return none;
  return {values.front(), values.size() == 1 ? values.front() : values[1]};
}

nn::Conv2dModuleOptions MakeOptions(const Conv2dSpec& spec) {
  return {.in = spec.in_channels,
          .out = spec.out_channels,
          .kernel = ToPair(spec.kernel_size),
          .convolution = {.stride = ToPair(spec.stride),
                          .padding = ToPair(spec.padding, {0, 0}),
                          .dilation = ToPair(spec.dilation),
                          .groups = spec.groups},
          .bias = spec.bias};
}

MaxPool2dOptions MakeOptions(const MaxPool2dSpec& spec) {
  const ImagePair kernel = ToPair(spec.kernel_size);
  return {.kernel = kernel,
          .stride = ToPair(spec.stride, kernel),
          .padding = ToPair(spec.padding, {0, 0}),
          .dilation = ToPair(spec.dilation)};
}

AvgPool2dOptions MakeOptions(const AvgPool2dSpec& spec) {
  const ImagePair kernel = ToPair(spec.kernel_size);
  return {.kernel = kernel,
          .stride = ToPair(spec.stride, kernel),
          .padding = ToPair(spec.padding, {0, 0}),
          .count_include_pad = spec.count_include_pad};
}

std::unique_ptr<const nn::Layer> MakeLayer(const nn::Scope& scope, const LayerSpec& layer) {
  using Made = std::unique_ptr<const nn::Layer>;
  return std::visit(
      Overloaded{
          [&](const FlattenSpec&) -> Made { return std::make_unique<nn::Flatten>(scope); },
          [&](const ReluSpec&) -> Made { return std::make_unique<nn::Relu>(scope); },
          [&](const GeluSpec& spec) -> Made {
            return std::make_unique<nn::Activation>(
                scope, spec.tanh ? ActivationKind::kGeluTanh : ActivationKind::kGelu);
          },
          [&](const TanhSpec&) -> Made {
            return std::make_unique<nn::Activation>(scope, ActivationKind::kTanh);
          },
          [&](const SiluSpec&) -> Made {
            return std::make_unique<nn::Activation>(scope, ActivationKind::kSilu);
          },
          [&](const LayerNormSpec& spec) -> Made {
            return std::make_unique<nn::LayerNorm>(
                scope, nn::LayerNormOptions{.width = spec.width, .epsilon = spec.epsilon});
          },
          [&](const BatchNormSpec& spec) -> Made {
            return std::make_unique<nn::BatchNorm>(
                scope, nn::BatchNormOptions{.channels = spec.num_features,
                                            .epsilon = spec.eps,
                                            .momentum = spec.momentum,
                                            .group = ToNormGroup(spec.stats),
                                            .run_size = spec.ghost_size});
          },
          [&](const EmbeddingSpec& spec) -> Made {
            return std::make_unique<nn::Embedding>(
                scope, nn::EmbeddingOptions{.rows = spec.rows, .width = spec.width});
          },
          [&](const SigmoidSpec&) -> Made {
            return std::make_unique<nn::Activation>(scope, ActivationKind::kSigmoid);
          },
          [&](const HardswishSpec&) -> Made {
            return std::make_unique<nn::Activation>(scope, ActivationKind::kHardswish);
          },
          [&](const LeakyReluSpec& spec) -> Made {
            return std::make_unique<nn::LeakyRelu>(scope, spec.negative_slope);
          },
          [&](const UnflattenSpec& spec) -> Made {
            return std::make_unique<nn::Unflatten>(scope,
                                                   Shape{spec.channels, spec.height, spec.width});
          },
          [&](const Conv2dSpec& spec) -> Made {
            return std::make_unique<nn::Conv2d>(scope, MakeOptions(spec));
          },
          [&](const MaxPool2dSpec& spec) -> Made {
            return std::make_unique<nn::Pool2d>(scope,
                                                std::make_shared<MaxPool2d>(MakeOptions(spec)));
          },
          [&](const AvgPool2dSpec& spec) -> Made {
            return std::make_unique<nn::Pool2d>(scope,
                                                std::make_shared<AvgPool2d>(MakeOptions(spec)));
          },
          [&](const AdaptiveAvgPool2dSpec& spec) -> Made {
            return std::make_unique<nn::Pool2d>(
                scope, std::make_shared<AdaptiveAvgPool2d>(ToPair(spec.output_size)));
          },
          [&](const GroupNormSpec& spec) -> Made {
            return std::make_unique<nn::GroupNorm>(
                scope,
                nn::GroupNormOptions{
                    .groups = spec.num_groups, .channels = spec.num_channels, .epsilon = spec.eps});
          },
          [&](const DropoutSpec& spec) -> Made {
            return std::make_unique<nn::Dropout>(scope, spec.p);
          },
          [&](const LinearSpec& spec) -> Made {
            return std::make_unique<nn::Linear>(
                scope, nn::LinearOptions{.in = spec.in, .out = spec.out, .bias = spec.bias});
          },
      },
      layer.kind);
}

constexpr std::int64_t kLargestExample = 256;  // height and width of images

// The number of tokens expected by the first linear layer after a flatten of embedded tokens; 1 if
// there is none, or the number is not an integer.
std::int64_t CountTokens(std::span<const LayerSpec> layers) {
  std::int64_t width = std::get<EmbeddingSpec>(layers.front().kind).width;
  bool flat = false;
  for (const LayerSpec& layer : layers) {
    flat |= std::holds_alternative<FlattenSpec>(layer.kind);
    const auto* linear = std::get_if<LinearSpec>(&layer.kind);
    if (linear == nullptr) continue;
    if (flat) {
      const bool whole = width > 0 && linear->in % width == 0;
      return whole ? std::max<std::int64_t>(linear->in / width, 1) : 1;
    }
    width = linear->out;
  }
  return 1;
}

}  // namespace

std::vector<LayerSpec> MlpLayers(const MlpSpec& mlp) {
  std::vector<LayerSpec> layers = {{"flatten", FlattenSpec{}}};
  for (std::size_t i = 1; i < mlp.widths.size(); ++i) {
    if (i > 1) layers.push_back({StrCat("relu", i - 1), ReluSpec{}});
    layers.push_back({StrCat("fc", i), LinearSpec{mlp.widths[i - 1], mlp.widths[i], true}});
  }
  return layers;
}

LayerChain::LayerChain(const nn::Scope& scope, std::span<const LayerSpec> layers) {
  if (!layers.empty()) {
    const auto* table = std::get_if<EmbeddingSpec>(&layers.front().kind);
    if (table != nullptr) {
      vocabulary_ = table->rows;
      tokens_ = CountTokens(layers);
    }
  }
  for (const LayerSpec& layer : layers) layers_.push_back(MakeLayer(scope / layer.name, layer));
  if (vocabulary_ == 0) example_ = ExampleFeatures(scope.parameters(), layers);
}

// The smallest square images that the layers accept, unless the layers determine the size.
Shape LayerChain::ExampleFeatures(const nn::ParameterList& parameters,
                                  std::span<const LayerSpec> layers) const {
  for (const LayerSpec& layer : layers) {
    if (const auto* image = std::get_if<UnflattenSpec>(&layer.kind)) {
      return {image->channels * image->height * image->width};
    }
    if (std::holds_alternative<LinearSpec>(layer.kind)) break;
    const auto* conv = std::get_if<Conv2dSpec>(&layer.kind);
    if (conv == nullptr) continue;
    for (std::int64_t side = 1; side <= kLargestExample; ++side) {
      const SampleSpec sample{
          .tensors = {{"features", DType::kF32, {conv->in_channels, side, side}}}};
      Graph graph;
      nn::Recorder recorder(graph, parameters, sample, {});
      (void)(*this)(recorder, recorder.Input("features"));
      if (recorder.status().ok()) return sample.tensors[0].shape;
    }
    break;
  }
  return {widths().in};
}

ValueId LayerChain::operator()(nn::Recorder& recorder, ValueId value) const {
  for (const auto& layer : layers_) {
    value = (*layer)(recorder, value);
    if (layer != layers_.back()) recorder.EndBlock(value);
  }
  return value;
}

SampleSpec LayerChain::ExampleSample(std::string name) const {
  SampleSpec sample = TokenSample(tokens_, vocabulary_);
  if (vocabulary_ == 0) sample = {.tensors = {{"", DType::kF32, example_}}};
  sample.tensors[0].name = std::move(name);
  return sample;
}

nn::Layer::Widths LayerChain::widths() const {
  nn::Layer::Widths found{1, 1};
  bool first = true;
  for (const auto& layer : layers_) {
    const auto widths = layer->widths();
    if (!widths) continue;
    if (first) found.in = widths->in;
    found.out = widths->out;
    first = false;
  }
  return found;
}

std::string LayerChain::Describe() const {
  std::string text;
  for (const auto& layer : layers_) {
    const auto widths = layer->widths();
    if (!widths) continue;
    if (text.empty()) text = StrCat(widths->in);
    text += StrCat("-", widths->out);
  }
  return text;
}

LayerList::LayerList(std::span<const LayerSpec> layers) : layers_(nn::Scope(parameters_), layers) {}

ValueId LayerList::Record(nn::Recorder& recorder) const {
  return layers_(recorder, recorder.Input(input()));
}

SampleSpec LayerList::ExampleSample() const { return layers_.ExampleSample(std::string(input())); }

std::string LayerList::Describe() const { return layers_.Describe(); }

}  // namespace gaccd
