#include "daemon/models/network.h"

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/models/bert.h"
#include "daemon/models/dual_encoder.h"
#include "daemon/models/gpt.h"
#include "daemon/models/layer_list.h"
#include "daemon/models/resnet.h"
#include "daemon/models/vit.h"

namespace gaccd {

ValueId Network::RecordEmbedding(nn::Recorder& recorder) const {
  recorder.Check(Describe(), {ErrorKind::kConfig, "has no embeddings of samples"});
  return nn::kNoValue;
}

SampleSpec TokenSample(std::int64_t length, std::int64_t vocabulary) {
  return {.tensors = {{"tokens", DType::kI32, {length}}}, .vocabulary = vocabulary};
}

std::shared_ptr<const Network> MakeNetwork(const ModelSpec& spec) {
  using Made = std::shared_ptr<const Network>;
  return std::visit(
      Overloaded{
          [&](const std::monostate&) -> Made { return std::make_shared<LayerList>(spec.layer); },
          [&](const MlpSpec& mlp) -> Made { return std::make_shared<LayerList>(LayersOf(mlp)); },
          [&](const GptSpec& gpt) -> Made { return std::make_shared<Gpt>(gpt); },
          [&](const BertSpec& bert) -> Made { return std::make_shared<Bert>(bert); },
          [&](const ResnetSpec& resnet) -> Made { return std::make_shared<Resnet>(resnet); },
          [&](const VitSpec& vit) -> Made { return std::make_shared<Vit>(vit); },
          [&](const DualEncoderSpec& dual) -> Made { return std::make_shared<DualEncoder>(dual); },
      },
      spec.architecture);
}

}  // namespace gaccd
