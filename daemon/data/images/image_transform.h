// Transforms an image to the features of a sample: crop, resize, flip, augmentations, colours,
// normalisation, erasing. Equal to torchvision's transforms of the same names on PIL images; as
// there, erasing follows normalisation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/images/image.h"
#include "daemon/data/images/image_ops.h"
#include "daemon/data/images/rand_augment.h"
#include "daemon/data/normalize.h"

namespace gaccd {

enum class ColorChange : std::uint8_t { kBrightness, kContrast, kSaturation, kHue };

// The parameters of the transform of one image: drawn at random or determined by its size.
struct ImageParameters {
  Box from;                 // part of the image
  std::int64_t height = 0;  // size to which `from` is resized
  std::int64_t width = 0;
  Box window;  // part of the resized image that is used
  bool flip = false;
  std::vector<Augmentation> augmentations = {};
  // In order of application. Factor 1, or 0 of the hue, means no change.
  std::array<ColorChange, 4> order{};
  std::array<double, 4> factor{1, 1, 1, 0};  // by ColorChange; for the hue a shift
  std::optional<Box> erased = std::nullopt;
};

// "crop top 3 left 0 height 20 width 31, resized to ..., flip yes, ShearX -0.09, brightness 1.2",
// with all digits, so that torchvision can reproduce it.
[[nodiscard]] std::string Describe(const ImageParameters& parameters);

// Immutable; thread-safe.
class ImageTransform {
 public:
  // kConfig unless channel_mean and channel_std of the normalisation are empty or have
  // source.channels values, and for a result that is not finite.
  static Result<ImageTransform> Make(const ImagesSpec& source, const NormalizeSpec& normalize);

  [[nodiscard]] std::int64_t height() const { return height_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t channels() const { return source_.channels; }

  // Draws the parameters for an image of this size. `key`: of the sample in its epoch; each
  // operation has its own random stream, independent of the others. kData for an image that is
  // smaller than its crop.
  [[nodiscard]] Result<ImageParameters> Draw(std::int64_t height, std::int64_t width,
                                             std::uint64_t key) const;

  // Writes features [channels, height, width]. REQUIRES: parameters of Draw() for the size of the
  // image, which has channels().
  void Apply(const Image& image, const ImageParameters& parameters, float* features) const;

  // Converts features back to 8-bit pixels: the inverse of the normalisation.
  [[nodiscard]] Image Restore(const float* features) const;

 private:
  ImageTransform(const ImagesSpec& source, std::vector<Affine> affine);

  ImagesSpec source_;
  std::int64_t height_;
  std::int64_t width_;
  std::vector<Affine> affine_;  // by channel
};

}  // namespace gaccd
