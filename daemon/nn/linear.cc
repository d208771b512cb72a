#include "daemon/nn/linear.h"

#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/ops/linear.h"

namespace gaccd::nn {

Linear::Linear(const Scope& scope, const Options& options)
    : Layer(scope), in_(options.in), out_(options.out) {
  const Initializer initializer = Uniform(1 / std::sqrt(static_cast<double>(in_)));
  weight_ = Declare(scope, {"weight", {out_, in_}, initializer});
  if (options.bias) bias_ = Declare(scope, {"bias", {out_}, initializer});
}

ValueId Linear::operator()(Recorder& recorder, ValueId input) const {
  const Shape& shape = recorder.shape(input);
  if (shape.size() != 2 || shape[1] != in_) {
    const Shape sample(shape.empty() ? shape.end() : shape.begin() + 1, shape.end());
    Check(recorder,
          {ErrorKind::kConfig,
           StrCat("linear.in is ", in_, ", but its input has the shape ", ToString(sample),
                  sample.size() == 1 ? "" : ": put a flatten layer before it")});
  }
  std::vector<ValueId> inputs = {input, recorder.Parameter(weight_)};
  if (bias_) inputs.push_back(recorder.Parameter(*bias_));
  return Apply(recorder, std::make_shared<gaccd::Linear>(), std::move(inputs));
}

}  // namespace gaccd::nn
