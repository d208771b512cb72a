#include "daemon/nn/image_layers.h"

#include "collectives/base/strings.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/norm/group_norm.h"

namespace gaccd::nn {

ValueId Unflatten::operator()(Recorder& recorder, ValueId input) const {
  const ValueId plain = recorder.Plain(path(), input);
  const Shape sample = recorder.SampleShape(plain);
  if (plain != kNoValue && Elements(sample) != Elements(image_)) {
    Check(recorder, {ErrorKind::kConfig,
                     StrCat("unflatten: expected ", Elements(image_), " values a sample, for ",
                            ToString(image_), ", found ", ToString(sample))});
  }
  Shape images = {recorder.samples()};
  images.insert(images.end(), image_.begin(), image_.end());
  return Apply(recorder, std::make_shared<Reshape>(images), {plain});
}

ValueId Pool2d::operator()(Recorder& recorder, ValueId input) const {
  const ValueId images = recorder.Image(path(), input);
  return Apply(recorder, function_, {images});
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
