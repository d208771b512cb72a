#include "daemon/models/network.h"

#include <cmath>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/models/bert.h"
#include "daemon/models/dual_encoder.h"
#include "daemon/models/gpt.h"
#include "daemon/models/graph_network.h"
#include "daemon/models/layer_list.h"
#include "daemon/models/resnet.h"
#include "daemon/models/vit.h"
#include "daemon/ops/layout/reshape.h"

namespace gaccd {

ValueId Network::RecordEmbedding(nn::Recorder& recorder) const {
  recorder.Check(Describe(), {ErrorKind::kConfig, "has no embeddings of samples"});
  return nn::kNoValue;
}

void CheckContext(nn::Recorder& recorder, std::int64_t tokens, std::int64_t context,
                  std::string_view field) {
  if (tokens <= context) return;
  recorder.Check("model", {ErrorKind::kConfig,
                           StrCat("the data has samples of ", tokens,
                                  " tokens, the model a context "
                                  "of ",
                                  context, ": raise ", field,
                                  ", or make shorter samples "
                                  "(stream.length of the data, --length of tools/prepare)")});
}

SampleSpec TokenSample(std::int64_t length, std::int64_t vocabulary) {
  return {.tensors = {{"tokens", DType::kI32, {length}}}, .vocabulary = vocabulary};
}

ValueId RecordImages(nn::Recorder& recorder, std::int64_t channels) {
  const ValueId features = recorder.Input("features");
  Shape image = recorder.SampleShape(features);
  if (image.size() == 3) return features;
  if (image.size() == 2) {
    image.insert(image.begin(), 1);
  } else {
    const std::int64_t pixels = Elements(image) / channels;
    const auto side =
        static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
    image = {channels, side, side};
  }
  Shape images = {recorder.samples()};
  images.insert(images.end(), image.begin(), image.end());
  return recorder.Apply("images", std::make_shared<Reshape>(images), {features});
}

Result<std::shared_ptr<const Network>> MakeNetwork(const ModelSpec& spec) {
  using Made = std::shared_ptr<const Network>;
  using Loaded = Result<Made>;
  return std::visit(
      Overloaded{
          [&](const std::monostate&) -> Loaded {
            return Made(std::make_shared<LayerList>(spec.layer));
          },
          [&](const MlpSpec& mlp) -> Loaded {
            return Made(std::make_shared<LayerList>(MlpLayers(mlp)));
          },
          [&](const GptSpec& gpt) -> Loaded { return Made(std::make_shared<Gpt>(gpt)); },
          [&](const BertSpec& bert) -> Loaded { return Made(std::make_shared<Bert>(bert)); },
          [&](const ResnetSpec& resnet) -> Loaded {
            return Made(std::make_shared<Resnet>(resnet));
          },
          [&](const VitSpec& vit) -> Loaded { return Made(std::make_shared<Vit>(vit)); },
          [&](const DualEncoderSpec& dual) -> Loaded {
            return Made(std::make_shared<DualEncoder>(dual));
          },
          [&](const GraphSpec& graph) { return GraphNetwork::Load(graph); },
      },
      spec.architecture);
}

}  // namespace gaccd
