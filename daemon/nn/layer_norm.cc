#include "daemon/nn/layer_norm.h"

#include "daemon/ops/norm/layer_norm.h"

namespace gaccd::nn {

LayerNorm::LayerNorm(const Scope& scope, const LayerNormOptions& options)
    : Layer(scope), epsilon_(options.epsilon) {
  const Shape shape = {options.width};
  weight_ = Declare(scope, {"weight", shape, Constant(1)});
  bias_ = Declare(scope, {"bias", shape, Constant(0)});
}

ValueId LayerNorm::operator()(Recorder& recorder, ValueId input) const {
  return Apply(recorder, std::make_shared<gaccd::LayerNorm>(static_cast<float>(epsilon_)),
               {input, recorder.Parameter(weight_), recorder.Parameter(bias_)});
}

}  // namespace gaccd::nn
