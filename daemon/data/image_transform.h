// From an image to the features of a sample: cut out, resized, flipped, augmented, with other
// colours, normalised, erased in parts. The definitions are those of torchvision's transforms of
// the same names on PIL images; erasing works on the normalised features, as there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/image.h"
#include "daemon/data/normalize.h"
#include "daemon/data/rand_augment.h"
#include "daemon/data/resize_image.h"

namespace gaccd {

enum class ColorChange : std::uint8_t { kBrightness, kContrast, kSaturation, kHue };

// What is done with one image: all that was drawn for it, and what follows from its size.
struct ImageParameters {
  Box from;                 // of the image
  std::int64_t height = 0;  // it is resized to this
  std::int64_t width = 0;
  Box window;  // of which this is taken
  bool flip = false;
  std::vector<Augmentation> augmentations = {};
  // In the order in which they are applied; 1, or a hue of 0, changes nothing.
  std::array<ColorChange, 4> order{};
  std::array<double, 4> factor{1, 1, 1, 0};  // by ColorChange; of the hue a shift
  std::optional<Box> erased = std::nullopt;
};

// "crop top 3 left 0 height 20 width 31, resized to ..., flip yes, ShearX -0.09, brightness 1.2":
// factors with all digits, so that torchvision can do the same.
[[nodiscard]] std::string Describe(const ImageParameters& parameters);

// Immutable; any number of threads may use it.
class ImageTransform {
 public:
  // kConfig for a normalisation with other than 0, 1 or source.channels means or deviations, or
  // that is not finite.
  static Result<ImageTransform> Make(const ImagesSpec& source, const NormalizeSpec& normalize);

  [[nodiscard]] std::int64_t height() const { return height_; }
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::int64_t channels() const { return source_.channels; }

  // For an image of that size. `key`: of the sample in its epoch; each operation has a stream of
  // its own, so that none changes the numbers of another. kData for an image that is smaller than
  // what is to be cut out.
  [[nodiscard]] Result<ImageParameters> Draw(std::int64_t height, std::int64_t width,
                                             std::uint64_t key) const;

  // Writes [channels, height, width] features. REQUIRES: parameters of Draw() for this size, and
  // channels().
  void Apply(const Image& image, const ImageParameters& parameters, float* features) const;

  // The pixels of which features are made, as 8 bits: Apply() backwards.
  [[nodiscard]] Image Restore(const float* features) const;

 private:
  ImageTransform(const ImagesSpec& source, std::vector<Affine> affine);

  ImagesSpec source_;
  std::int64_t height_;
  std::int64_t width_;
  std::vector<Affine> affine_;  // by channel
};

}  // namespace gaccd
