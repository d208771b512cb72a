#include "daemon/nn/simple_layers.h"

#include "daemon/ops/flatten.h"
#include "daemon/ops/relu.h"

namespace gaccd::nn {

ValueId Flatten::operator()(Recorder& recorder, ValueId input) const {
  return Apply(recorder, std::make_shared<gaccd::Flatten>(), {input});
}

ValueId Relu::operator()(Recorder& recorder, ValueId input) const {
  return Apply(recorder, std::make_shared<gaccd::Relu>(), {input});
}

}  // namespace gaccd::nn
