#include "daemon/models/network.h"

#include "daemon/models/layer_list.h"

namespace gaccd {

std::shared_ptr<const Network> MakeNetwork(const ModelSpec& spec) {
  return std::make_shared<LayerList>(spec.layers);
}

}  // namespace gaccd
