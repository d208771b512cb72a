#include "daemon/models/images.h"

#include <cmath>

#include "daemon/ops/layout/reshape.h"

namespace gaccd {

ValueId RecordImages(nn::Recorder& recorder, std::int64_t channels) {
  const ValueId features = recorder.Input("features");
  Shape image = recorder.SampleShape(features);
  if (image.size() == 3) return features;
  if (image.size() == 2) {
    image.insert(image.begin(), 1);
  } else {
    const std::int64_t pixels = Elements(image) / channels;
    const auto side =
        static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
    image = {channels, side, side};
  }
  Shape images = {recorder.samples()};
  images.insert(images.end(), image.begin(), image.end());
  return recorder.Apply("images", std::make_shared<Reshape>(images), {features});
}

}  // namespace gaccd
