#include "daemon/nn/image_layers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/layout/reshape.h"

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

Conv2d::Conv2d(const Scope& scope, const Conv2dModuleOptions& options)
    : Layer(scope), options_(options) {
  // Invalid numbers of groups are detected when the convolution is recorded.
  const std::int64_t of_group = std::max<std::int64_t>(options.in / options.convolution.groups, 1);
  const auto [height, width] = options.kernel;
  const auto fan_in = static_cast<double>(of_group * height * width);
  const Initializer uniform = Uniform(1 / std::sqrt(fan_in));
  weight_ = Declare(scope, {"weight",
                            {options.out, of_group, height, width},
                            options.deviation ? Normal(*options.deviation) : uniform});
  if (options.bias) bias_ = Declare(scope, {"bias", {options.out}, uniform});
}

ValueId Conv2d::operator()(Recorder& recorder, ValueId input) const {
  const ValueId images = recorder.Image(path(), input);
  const std::int64_t groups = options_.convolution.groups;
  if (options_.in % groups != 0) {
    Check(recorder,
          {ErrorKind::kConfig, StrCat("conv2d.groups: expected a divisor of in_channels, ",
                                      options_.in, ", found ", groups)});
  }
  const Shape sample = recorder.SampleShape(images);
  if (sample.size() == 3 && sample[0] != options_.in) {
    Check(recorder,
          {ErrorKind::kConfig, StrCat("conv2d.in_channels is ", options_.in,
                                      ", but its input has the shape ", ToString(sample))});
  }
  std::vector<ValueId> inputs = {images, recorder.Parameter(weight_)};
  if (bias_) inputs.push_back(recorder.Parameter(*bias_));
  return Apply(recorder, std::make_shared<gaccd::Conv2d>(options_.convolution), std::move(inputs));
}

}  // namespace gaccd::nn
