#include "collectives/base/overloaded.h"
#include "daemon/models/bert.h"
#include "daemon/models/dual_encoder.h"
#include "daemon/models/gpt.h"
#include "daemon/models/graph_network.h"
#include "daemon/models/layer_list.h"
#include "daemon/models/network.h"
#include "daemon/models/resnet.h"
#include "daemon/models/vit.h"

namespace gaccd {

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
