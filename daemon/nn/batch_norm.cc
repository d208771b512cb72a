#include "daemon/nn/batch_norm.h"

#include "collectives/base/strings.h"

namespace gaccd::nn {

BatchNorm::BatchNorm(const Scope& scope, const BatchNormOptions& options)
    : Layer(scope), options_(options) {
  const Shape shape = {options.channels};
  const auto buffer = [&scope](const char* name, const Shape& size, double value) {
    return Declare(scope, {name, size, Constant(value), /*frozen=*/true, /*buffer=*/true});
  };
  declared_.weight = Declare(scope, {"weight", shape, Constant(1)});
  declared_.bias = Declare(scope, {"bias", shape, Constant(0)});
  declared_.mean = buffer("running_mean", shape, 0);
  declared_.variance = buffer("running_var", shape, 1);
  declared_.updates = buffer("num_batches_tracked", {}, 0);
}

ValueId BatchNorm::operator()(Recorder& recorder, ValueId input) const {
  if (recorder.shape(input).size() > 2) input = recorder.Image(path(), input);
  const Shape sample = recorder.SampleShape(input);
  if (!sample.empty() && sample[0] != options_.channels) {
    Check(recorder,
          {ErrorKind::kConfig, StrCat("batch_norm.num_features is ", options_.channels,
                                      ", but its input has the shape ", ToString(sample))});
  }
  const bool of_update = recorder.training() && options_.group == NormGroup::kUpdate;
  ValueId sums = kNoValue;
  if (of_update) {
    const ValueId own = Apply(recorder, std::make_shared<ChannelSums>(), {input});
    sums = Apply(recorder, std::make_shared<UpdateSum>(), {own});
    recorder.AddRunningUpdate(
        {sums, options_.momentum, declared_.mean, declared_.variance, declared_.updates});
  } else {
    sums = Apply(recorder, std::make_shared<FixedSums>(),
                 {recorder.Parameter(declared_.mean), recorder.Parameter(declared_.variance)});
  }
  return Apply(
      recorder,
      std::make_shared<gaccd::BatchNorm>(static_cast<float>(options_.epsilon),
                                         of_update ? NormGroup::kUpdate : NormGroup::kNone),
      {input, sums, recorder.Parameter(declared_.weight), recorder.Parameter(declared_.bias)});
}

}  // namespace gaccd::nn
