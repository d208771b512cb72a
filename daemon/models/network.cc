#include "daemon/models/network.h"

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/models/bert.h"
#include "daemon/models/gpt.h"
#include "daemon/models/layer_list.h"

namespace gaccd {
namespace {

// flatten, fc1, relu1, fc2, ...
std::vector<LayerSpec> LayersOf(const MlpSpec& mlp) {
  std::vector<LayerSpec> layers = {{"flatten", FlattenSpec{}}};
  for (std::size_t i = 1; i < mlp.widths.size(); ++i) {
    if (i > 1) layers.push_back({StrCat("relu", i - 1), ReluSpec{}});
    layers.push_back({StrCat("fc", i), LinearSpec{mlp.widths[i - 1], mlp.widths[i], true}});
  }
  return layers;
}

}  // namespace

SampleSpec TokenSample(std::int64_t length, std::int64_t vocabulary) {
  return {.tensors = {{"tokens", DType::kI32, {length}}}, .vocabulary = vocabulary};
}

std::shared_ptr<const Network> MakeNetwork(const ModelSpec& spec) {
  using Made = std::shared_ptr<const Network>;
  return std::visit(
      Overloaded{
          [&](const LayersSpec&) -> Made { return std::make_shared<LayerList>(spec.layers); },
          [&](const MlpSpec& mlp) -> Made { return std::make_shared<LayerList>(LayersOf(mlp)); },
          [&](const GptSpec& gpt) -> Made { return std::make_shared<Gpt>(gpt); },
          [&](const BertSpec& bert) -> Made { return std::make_shared<Bert>(bert); },
      },
      spec.architecture);
}

}  // namespace gaccd
