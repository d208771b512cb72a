#include "daemon/nn/linear.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd::nn {

Linear::Linear(const Scope& scope, const LinearOptions& options) : Layer(scope), options_(options) {
  const auto [in, out, has_bias, order, deviation] = options;
  const Initializer uniform = Uniform(1 / std::sqrt(static_cast<double>(in)));
  weight_ = Declare(scope, {.name = "weight",
                            .shape = order == WeightOrder::kOutIn ? Shape{out, in} : Shape{in, out},
                            .initializer = deviation ? Normal(*deviation) : uniform});
  if (!has_bias) return;
  bias_ = Declare(
      scope, {.name = "bias", .shape = {out}, .initializer = deviation ? Constant(0) : uniform});
}

ValueId Linear::operator()(Recorder& recorder, ValueId input) const {
  const Shape shape = recorder.shape(input);
  if (shape.size() != 2 || shape[1] != options_.in) {
    const Shape sample = recorder.SampleShape(input);
    const std::int64_t rows =
        shape.empty() ? 1 : shape[0] / std::max<std::int64_t>(recorder.samples(), 1);
    Check(recorder,
          {ErrorKind::kConfig,
           StrCat("linear.in is ", options_.in, ", but its input has the shape ", ToString(sample),
                  rows > 1 ? StrCat(" for each of ", rows, " tokens") : "",
                  sample.size() == 1 && rows <= 1 ? "" : ": put a flatten layer before it")});
  }
  std::vector<ValueId> inputs = {input, recorder.Parameter(weight_)};
  if (bias_) inputs.push_back(recorder.Parameter(*bias_));
  return Apply(recorder, std::make_shared<gaccd::Linear>(false, options_.order), std::move(inputs));
}

TiedLinear::TiedLinear(const Scope& scope, ParameterIndex weight, std::int64_t out)
    : TiedLinear(scope, weight) {
  bias_ = Declare(scope, {.name = "bias", .shape = {out}, .initializer = Constant(0)});
}

ValueId TiedLinear::operator()(Recorder& recorder, ValueId input) const {
  std::vector<ValueId> inputs = {input, recorder.Parameter(weight_)};
  if (bias_) inputs.push_back(recorder.Parameter(*bias_));
  return Apply(recorder, std::make_shared<gaccd::Linear>(), std::move(inputs));
}

}  // namespace gaccd::nn
