#include "daemon/models/layer_list.h"

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/nn/embedding.h"
#include "daemon/nn/layer_norm.h"
#include "daemon/nn/linear.h"
#include "daemon/nn/simple_layers.h"

namespace gaccd {
namespace {

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
          [&](const EmbeddingSpec& spec) -> Made {
            return std::make_unique<nn::Embedding>(
                scope, nn::EmbeddingOptions{.rows = spec.rows, .width = spec.width});
          },
          [&](const LinearSpec& spec) -> Made {
            return std::make_unique<nn::Linear>(
                scope, nn::LinearOptions{.in = spec.in, .out = spec.out, .bias = spec.bias});
          },
      },
      layer.kind);
}

SampleSpec Features(std::int64_t width) {
  return {.tensors = {{"features", DType::kF32, {width}}}};
}

}  // namespace

LayerList::LayerList(std::span<const LayerSpec> layers) {
  const nn::Scope scope(parameters_);
  if (!layers.empty()) {
    const auto* table = std::get_if<EmbeddingSpec>(&layers.front().kind);
    if (table != nullptr) vocabulary_ = table->rows;
  }
  for (const LayerSpec& layer : layers) layers_.push_back(MakeLayer(scope / layer.name, layer));
}

ValueId LayerList::Record(nn::Recorder& recorder) const {
  ValueId value = recorder.Input(vocabulary_ > 0 ? "tokens" : "features");
  for (const auto& layer : layers_) value = (*layer)(recorder, value);
  return value;
}

SampleSpec LayerList::ExampleSample() const {
  if (vocabulary_ > 0) return TokenSample(1, vocabulary_);
  for (const auto& layer : layers_) {
    if (const auto widths = layer->widths()) return Features(widths->in);
  }
  return Features(1);
}

std::string LayerList::Describe() const {
  std::string text;
  for (const auto& layer : layers_) {
    const auto widths = layer->widths();
    if (!widths) continue;
    if (text.empty()) text = StrCat(widths->in);
    text += StrCat("-", widths->out);
  }
  return text;
}

}  // namespace gaccd
