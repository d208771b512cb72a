#include "daemon/data/images/image_transform.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "collectives/base/json.h"
#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// Random streams of a sample's key. Values must not be reused for other operations.
enum class Operation : std::uint64_t { kCrop = 1, kFlip = 2, kColor = 3, kErase = 4, kAugment = 5 };

RandomStream MakeNumbers(std::uint64_t key, Operation operation) {
  return RandomStream(StreamKey(key, static_cast<std::uint64_t>(operation)));
}

struct Range {
  double low;
  double high;
};

Range RangeOr(const std::vector<double>& values, Range otherwise) {
  return values.empty() ? otherwise : Range{values[0], values[1]};
}

std::int64_t Rounded(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

enum class Ratio { kWidthToHeight, kHeightToWidth };

// Draws area and ratio of a part of an image until `fits` accepts it; nullopt after kTries.
template <typename Fits>
std::optional<Box> DrawBox(RandomStream& numbers, std::int64_t height, std::int64_t width,
                           Range scale, Range ratio, Ratio kind, const Fits& fits) {
  constexpr int kTries = 10;
  const auto area = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * numbers.Uniform(scale.low, scale.high);
    const double aspect = std::exp(numbers.Uniform(std::log(ratio.low), std::log(ratio.high)));
    Box box{.height = Rounded(std::sqrt(target / aspect)),
            .width = Rounded(std::sqrt(target * aspect))};
    if (kind == Ratio::kHeightToWidth) std::swap(box.height, box.width);
    if (!fits(box)) continue;
    box.top = numbers.Below(height - box.height + 1);
    box.left = numbers.Below(width - box.width + 1);
    return box;
  }
  return std::nullopt;
}

// The largest centred part with an allowed ratio.
Box CentralBox(std::int64_t height, std::int64_t width, Range ratio) {
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  Box box{.height = height, .width = width};
  if (aspect < ratio.low) {
    box.height = Rounded(static_cast<double>(width) / ratio.low);
  } else if (aspect > ratio.high) {
    box.width = Rounded(static_cast<double>(height) * ratio.high);
  }
  box.height = std::clamp(box.height, std::int64_t{1}, height);
  box.width = std::clamp(box.width, std::int64_t{1}, width);
  box.top = (height - box.height) / 2;
  box.left = (width - box.width) / 2;
  return box;
}

Box DrawCrop(const RandomResizedCropSpec& crop, std::int64_t height, std::int64_t width,
             std::uint64_t key) {
  const Range ratio = RangeOr(crop.ratio, {3.0 / 4, 4.0 / 3});
  RandomStream numbers = MakeNumbers(key, Operation::kCrop);
  const auto fits = [&](const Box& box) {
    return box.height > 0 && box.width > 0 && box.height <= height && box.width <= width;
  };
  const auto box = DrawBox(numbers, height, width, RangeOr(crop.scale, {0.08, 1}), ratio,
                           Ratio::kWidthToHeight, fits);
  return box.value_or(CentralBox(height, width, ratio));
}

std::vector<Augmentation> DrawAugmentations(const RandAugmentSpec& spec, std::int64_t height,
                                            std::int64_t width, std::uint64_t key) {
  RandomStream numbers = MakeNumbers(key, Operation::kAugment);
  std::vector<Augmentation> drawn;
  for (std::int64_t i = 0; i < spec.num_ops; ++i) {
    const auto kind = static_cast<AugmentKind>(numbers.Below(kAugmentKinds));
    const double magnitude = Magnitude(kind, spec, height, width);
    const bool negative = IsSigned(kind) && numbers.Below(2) == 1;
    drawn.push_back({kind, negative ? -magnitude : magnitude});
  }
  return drawn;
}

// The order of the four changes is a random permutation (inside-out shuffle).
void DrawColors(const ColorJitterSpec& jitter, std::uint64_t key, ImageParameters& parameters) {
  RandomStream numbers = MakeNumbers(key, Operation::kColor);
  const std::array<double, 3> spread{jitter.brightness, jitter.contrast, jitter.saturation};
  for (std::size_t i = 0; i < spread.size(); ++i) {
    parameters.factor[i] = numbers.Uniform(std::max(0.0, 1 - spread[i]), 1 + spread[i]);
  }
  parameters.factor[3] = numbers.Uniform(-jitter.hue, jitter.hue);
  for (std::size_t i = 0; i < parameters.order.size(); ++i) {
    const auto at = static_cast<std::size_t>(numbers.Below(static_cast<std::int64_t>(i) + 1));
    parameters.order[i] = parameters.order[at];
    parameters.order[at] = static_cast<ColorChange>(i);
  }
}

void ApplyColors(const ImageParameters& parameters, Image& image) {
  for (const ColorChange change : parameters.order) {
    const double factor = parameters.factor[static_cast<std::size_t>(change)];
    if (factor == (change == ColorChange::kHue ? 0 : 1)) continue;
    switch (change) {
      case ColorChange::kBrightness:
        AdjustBrightness(image, factor);
        break;
      case ColorChange::kContrast:
        AdjustContrast(image, factor);
        break;
      case ColorChange::kSaturation:
        AdjustSaturation(image, factor);
        break;
      case ColorChange::kHue:
        AdjustHue(image, factor);
    }
  }
}

void Flip(Image& image) {
  const std::int64_t row = image.width * image.channels;
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::uint8_t* left = image.pixels.data() + y * row;
    std::uint8_t* right = left + row - image.channels;
    for (; left < right; left += image.channels, right -= image.channels) {
      std::swap_ranges(left, left + image.channels, right);
    }
  }
}

// [pixels, 3] -> [3, pixels]
GACCD_SIMD_CLONES
void NormalizeRgb(const std::uint8_t* from, std::int64_t pixels, Affine red, Affine green,
                  Affine blue, float* to) {
  const float factors[] = {red.f32_factor(), green.f32_factor(), blue.f32_factor()};
  const float shifts[] = {red.f32_shift(), green.f32_shift(), blue.f32_shift()};
  for (std::int64_t i = 0; i < pixels; ++i) {
    to[i] = static_cast<float>(from[3 * i]) * factors[0] + shifts[0];
    to[pixels + i] = static_cast<float>(from[3 * i + 1]) * factors[1] + shifts[1];
    to[2 * pixels + i] = static_cast<float>(from[3 * i + 2]) * factors[2] + shifts[2];
  }
}

GACCD_SIMD_CLONES
void NormalizeGrey(const std::uint8_t* from, std::int64_t pixels, Affine grey, float* to) {
  const float factor = grey.f32_factor();
  const float shift = grey.f32_shift();
  for (std::int64_t i = 0; i < pixels; ++i) {
    to[i] = static_cast<float>(from[i]) * factor + shift;
  }
}

std::string Describe(const Box& box) {
  return StrCat("top ", box.top, " left ", box.left, " height ", box.height, " width ", box.width);
}

}  // namespace

std::string Describe(const ImageParameters& parameters) {
  constexpr std::array<std::string_view, 4> kNames{"brightness", "contrast", "saturation", "hue"};
  std::string text = StrCat("crop ", Describe(parameters.from), ", resized to height ",
                            parameters.height, " width ", parameters.width, ", window ",
                            Describe(parameters.window), ", flip ", parameters.flip ? "yes" : "no");
  for (const Augmentation& augmentation : parameters.augmentations) {
    text += StrCat(", ", Describe(augmentation));
  }
  for (const ColorChange change : parameters.order) {
    const auto i = static_cast<std::size_t>(change);
    if (parameters.factor[i] != ImageParameters().factor[i]) {
      text += StrCat(", ", kNames[i], " ", Json(parameters.factor[i]).Dump());
    }
  }
  if (parameters.erased) text += StrCat(", erased ", Describe(*parameters.erased));
  return text;
}

Result<ImageTransform> ImageTransform::Make(const ImagesSpec& source,
                                            const NormalizeSpec& normalize) {
  const auto channels = static_cast<std::size_t>(source.channels);
  const auto value_of = [channels](const std::vector<double>& values, double otherwise,
                                   std::string_view name) -> Result<std::vector<double>> {
    if (values.empty()) return std::vector<double>(channels, otherwise);
    if (values.size() == channels) return values;
    return Status(ErrorKind::kConfig,
                  StrCat("data.normalize.", name, ": expected ", channels,
                         " values, one for each channel, found ", values.size()));
  };
  GACCD_ASSIGN_OR_RETURN(const std::vector<double> means,
                         value_of(normalize.channel_mean, normalize.mean, "channel_mean"));
  GACCD_ASSIGN_OR_RETURN(const std::vector<double> deviations,
                         value_of(normalize.channel_std, normalize.std, "channel_std"));
  std::vector<Affine> affine;
  for (std::size_t c = 0; c < channels; ++c) {
    NormalizeSpec own = normalize;
    own.mean = means[c];
    own.std = deviations[c];
    GACCD_ASSIGN_OR_RETURN(affine.emplace_back(), MakeAffine(own, 255));
  }
  return ImageTransform(source, std::move(affine));
}

ImageTransform::ImageTransform(const ImagesSpec& source, std::vector<Affine> affine)
    : source_(source),
      height_(source.size.front()),
      width_(source.size.back()),
      affine_(std::move(affine)) {}

Result<ImageParameters> ImageTransform::Draw(std::int64_t height, std::int64_t width,
                                             std::uint64_t key) const {
  ImageParameters drawn{.from = {.height = height, .width = width},
                        .height = height_,
                        .width = width_,
                        .window = {.height = height_, .width = width_}};
  for (std::size_t i = 0; i < drawn.order.size(); ++i) {
    drawn.order[i] = static_cast<ColorChange>(i);
  }
  if (const auto* random = std::get_if<RandomResizedCropSpec>(&source_.crop)) {
    drawn.from = DrawCrop(*random, height, width, key);
  } else if (const auto* center = std::get_if<CenterCropSpec>(&source_.crop)) {
    drawn.height = height;
    drawn.width = width;
    if (center->resize > 0) {
      const auto resized = [&](std::int64_t side, std::int64_t shorter) {
        return static_cast<std::int64_t>(static_cast<double>(center->resize * side) /
                                         static_cast<double>(shorter));
      };
      const std::int64_t shorter = std::min(height, width);
      drawn.height = resized(height, shorter);
      drawn.width = resized(width, shorter);
    }
    if (drawn.height < height_ || drawn.width < width_) {
      return Status(ErrorKind::kData,
                    StrCat("expected an image of at least ", width_, " x ", height_,
                           " pixels to cut out its centre, found ", drawn.width, " x ",
                           drawn.height, "; center_crop.resize makes images larger"));
    }
    const Box centre{.top = Rounded(static_cast<double>(drawn.height - height_) / 2),
                     .left = Rounded(static_cast<double>(drawn.width - width_) / 2),
                     .height = height_,
                     .width = width_};
    if (drawn.height == height && drawn.width == width) {
      drawn.from = centre;  // nothing else is decoded
      drawn.height = height_;
      drawn.width = width_;
    } else {
      drawn.window = centre;
    }
  }
  drawn.flip = MakeNumbers(key, Operation::kFlip).Uniform(0, 1) < source_.horizontal_flip;
  if (const auto* augment = std::get_if<RandAugmentSpec>(&source_.augmentation)) {
    drawn.augmentations = DrawAugmentations(*augment, height_, width_, key);
  }
  const ColorJitterSpec& jitter = source_.color_jitter;
  if (jitter.brightness > 0 || jitter.contrast > 0 || jitter.saturation > 0 || jitter.hue > 0) {
    DrawColors(jitter, key, drawn);
  }
  if (source_.random_erasing) {
    RandomStream numbers = MakeNumbers(key, Operation::kErase);
    const RandomErasingSpec& erasing = *source_.random_erasing;
    if (numbers.Uniform(0, 1) < erasing.p) {
      drawn.erased =
          DrawBox(numbers, height_, width_, RangeOr(erasing.scale, {0.02, 0.33}),
                  RangeOr(erasing.ratio, {0.3, 3.3}), Ratio::kHeightToWidth,
                  [this](const Box& box) { return box.height < height_ && box.width < width_; });
    }
  }
  return drawn;
}

void ImageTransform::Apply(const Image& image, const ImageParameters& parameters,
                           float* features) const {
  Image out =
      ResizeImage(image, parameters.from, parameters.height, parameters.width, parameters.window);
  if (parameters.flip) Flip(out);
  for (const Augmentation& augmentation : parameters.augmentations) Augment(out, augmentation);
  ApplyColors(parameters, out);
  const std::int64_t plane = height_ * width_;
  if (channels() == 3) {
    NormalizeRgb(out.pixels.data(), plane, affine_[0], affine_[1], affine_[2], features);
  } else {
    NormalizeGrey(out.pixels.data(), plane, affine_[0], features);
  }
  if (!parameters.erased) return;
  const Box& box = *parameters.erased;
  for (std::int64_t c = 0; c < channels(); ++c) {
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      std::fill_n(features + c * plane + y * width_ + box.left, box.width, 0.0F);
    }
  }
}

Image ImageTransform::Restore(const float* features) const {
  Image image{height_, width_, channels(), {}};
  const std::int64_t plane = height_ * width_;
  for (std::int64_t i = 0; i < plane; ++i) {
    for (std::int64_t c = 0; c < channels(); ++c) {
      const auto [factor, shift] = affine_[static_cast<std::size_t>(c)];
      const double value = std::nearbyint((features[c * plane + i] - shift) / factor);
      image.pixels.push_back(static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0)));
    }
  }
  return image;
}

}  // namespace gaccd
