#include "daemon/nn/norms.h"

#include <array>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/ops/norm/group_norm.h"
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
  const NormGroup group = recorder.training() ? options_.group : NormGroup::kNone;
  NormRuns runs;
  if (group == NormGroup::kRuns) {
    runs = {.size = options_.run_size,
            .count = (recorder.update_samples() + options_.run_size - 1) / options_.run_size,
            .samples = recorder.samples()};
  }
  const ValueId sums =
      group != NormGroup::kNone
          ? GroupSums(recorder, input, runs)
          : Apply(recorder, std::make_shared<FixedSums>(),
                  {recorder.Parameter(declared_.mean), recorder.Parameter(declared_.variance)});
  std::vector<ValueId> inputs = {input, sums, recorder.Parameter(declared_.weight),
                                 recorder.Parameter(declared_.bias)};
  if (runs.size > 0) inputs.push_back(recorder.Input(kPosition));
  const auto epsilon = static_cast<float>(options_.epsilon);
  return Apply(recorder, std::make_shared<gaccd::BatchNorm>(epsilon, group, runs),
               std::move(inputs));
}

ValueId BatchNorm::GroupSums(Recorder& recorder, ValueId input, const NormRuns& runs) const {
  const std::int64_t rows = Elements(recorder.shape(input)) / options_.channels;
  RunningUpdate running{.run_size = runs.size,
                        .values = recorder.samples() > 0 ? rows / recorder.samples() : 0,
                        .momentum = options_.momentum,
                        .mean = declared_.mean,
                        .variance = declared_.variance,
                        .updates = declared_.updates};
  std::vector<ValueId> inputs = {input};
  if (runs.size > 0) inputs.push_back(recorder.Input(kPosition));
  ValueId sums = Apply(recorder, std::make_shared<ChannelSums>(runs), std::move(inputs));
  if (options_.group == NormGroup::kMicroBatch) {
    const std::array buffers = {declared_.mean, declared_.variance, declared_.updates};
    recorder.AddToBuffers(StrCat("layer '", path(), "'"), std::make_shared<MicroStatistics>(),
                          {sums}, buffers);
  } else {
    sums = Apply(recorder, std::make_shared<UpdateSum>(), {sums});
    running.sums = sums;
  }
  recorder.AddRunningUpdate(running);
  return sums;
}

GroupNorm::GroupNorm(const Scope& scope, const GroupNormOptions& options)
    : Layer(scope), options_(options) {
  weight_ = Declare(scope, {"weight", {options.channels}, Constant(1)});
  bias_ = Declare(scope, {"bias", {options.channels}, Constant(0)});
}

ValueId GroupNorm::operator()(Recorder& recorder, ValueId input) const {
  const ValueId images = recorder.Image(path(), input);
  const Shape sample = recorder.SampleShape(images);
  if (sample.size() == 3 && sample[0] != options_.channels) {
    Check(recorder,
          {ErrorKind::kConfig, StrCat("group_norm.num_channels is ", options_.channels,
                                      ", but its input has the shape ", ToString(sample))});
  }
  const auto eps = static_cast<float>(options_.epsilon);
  return Apply(recorder, std::make_shared<gaccd::GroupNorm>(options_.groups, eps),
               {images, recorder.Parameter(weight_), recorder.Parameter(bias_)});
}

}  // namespace gaccd::nn
