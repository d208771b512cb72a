#include "daemon/data/images/rand_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>
#include <vector>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/data/images/image_ops.h"

namespace gaccd {
namespace {

// Value `i` of torch.linspace(first, last, count), which is f32.
double Linspace(float first, float last, std::int64_t count, std::int64_t i) {
  const float step = (last - first) / static_cast<float>(count - 1);
  return i < count / 2 ? first + step * static_cast<float>(i)
                       : last - step * static_cast<float>(count - 1 - i);
}

// Maps pixel (x, y) of the result to (a x + b y + c, d x + e y + f) of the source.
struct Affinity {
  double a, b, c, d, e, f;
};

// PIL's transform with NEAREST: fixed-point with 16 fractional bits, at pixel centres.
void Move(Image& image, const Affinity& from) {
  const auto fixed = [](double value) {
    return static_cast<std::int64_t>(std::floor(value * 65536 + 0.5));
  };
  const auto channels = static_cast<std::size_t>(image.channels);
  std::int64_t row_x = fixed(from.c + from.a * 0.5 + from.b * 0.5);
  std::int64_t row_y = fixed(from.f + from.d * 0.5 + from.e * 0.5);
  Image moved{image.height, image.width, image.channels,
              std::vector<std::uint8_t>(image.pixels.size())};
  std::uint8_t* to = moved.pixels.data();
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::int64_t at_x = row_x;
    std::int64_t at_y = row_y;
    for (std::int64_t x = 0; x < image.width; ++x, to += channels) {
      const std::int64_t in_x = at_x >> 16;
      const std::int64_t in_y = at_y >> 16;
      if (in_x >= 0 && in_x < image.width && in_y >= 0 && in_y < image.height) {
        const std::size_t pixel = static_cast<std::size_t>(in_y * image.width + in_x);
        std::copy_n(image.pixels.data() + pixel * channels, channels, to);
      }
      at_x += fixed(from.a);
      at_y += fixed(from.d);
    }
    row_x += fixed(from.b);
    row_y += fixed(from.e);
  }
  image = std::move(moved);
}

// PIL's rotate: around the centre, with sine and cosine rounded to 15 digits.
void Rotate(Image& image, double degrees) {
  const double turn = -(std::fmod(degrees + 360, 360)) * std::numbers::pi / 180;
  const auto digits = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };
  const double cosine = digits(std::cos(turn));
  const double sine = digits(std::sin(turn));
  const double x = static_cast<double>(image.width) / 2;
  const double y = static_cast<double>(image.height) / 2;
  Move(image, {cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y});
}

}  // namespace

std::string_view Name(AugmentKind kind) {
  static constexpr std::array<std::string_view, kAugmentKinds> kNames = {
      "Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
      "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool IsSigned(AugmentKind kind) {
  return kind >= AugmentKind::kShearX && kind <= AugmentKind::kSharpness;
}

double Magnitude(AugmentKind kind, const RandAugmentSpec& spec, std::int64_t height,
                 std::int64_t width) {
  const auto of = [&spec](double first, double last) {
    return Linspace(static_cast<float>(first), static_cast<float>(last), spec.num_magnitude_bins,
                    spec.magnitude);
  };
  switch (kind) {
    case AugmentKind::kIdentity:
    case AugmentKind::kAutoContrast:
    case AugmentKind::kEqualize:
      return 0;
    case AugmentKind::kShearX:
    case AugmentKind::kShearY:
      return of(0, 0.3);
    case AugmentKind::kTranslateX:
      return of(0, 150.0 / 331.0 * static_cast<double>(width));
    case AugmentKind::kTranslateY:
      return of(0, 150.0 / 331.0 * static_cast<double>(height));
    case AugmentKind::kRotate:
      return of(0, 30);
    case AugmentKind::kBrightness:
    case AugmentKind::kColor:
    case AugmentKind::kContrast:
    case AugmentKind::kSharpness:
      return of(0, 0.9);
    case AugmentKind::kPosterize: {
      const auto bins_of_bit =
          static_cast<float>(static_cast<double>(spec.num_magnitude_bins - 1) / 4);
      return 8 - std::nearbyint(static_cast<float>(spec.magnitude) / bins_of_bit);
    }
    case AugmentKind::kSolarize:
      return of(255, 0);
  }
  return 0;
}

std::string Describe(const Augmentation& augmentation) {
  const bool has_none = augmentation.kind == AugmentKind::kIdentity ||
                        augmentation.kind >= AugmentKind::kAutoContrast;
  const std::string name(Name(augmentation.kind));
  return has_none ? name : StrCat(name, " ", Json(augmentation.magnitude).Dump());
}

void Augment(Image& image, const Augmentation& augmentation) {
  const double magnitude = augmentation.magnitude;
  switch (augmentation.kind) {
    case AugmentKind::kIdentity:
      return;
    case AugmentKind::kShearX:
      return Move(image, {1, magnitude, 0, 0, 1, 0});
    case AugmentKind::kShearY:
      return Move(image, {1, 0, 0, magnitude, 1, 0});
    case AugmentKind::kTranslateX:
      return Move(image, {1, 0, -std::trunc(magnitude), 0, 1, 0});
    case AugmentKind::kTranslateY:
      return Move(image, {1, 0, 0, 0, 1, -std::trunc(magnitude)});
    case AugmentKind::kRotate:
      return Rotate(image, magnitude);
    case AugmentKind::kBrightness:
      return AdjustBrightness(image, 1 + magnitude);
    case AugmentKind::kColor:
      return AdjustSaturation(image, 1 + magnitude);
    case AugmentKind::kContrast:
      return AdjustContrast(image, 1 + magnitude);
    case AugmentKind::kSharpness:
      return AdjustSharpness(image, 1 + magnitude);
    case AugmentKind::kPosterize:
      return Posterize(image, static_cast<int>(magnitude));
    case AugmentKind::kSolarize:
      return Solarize(image, magnitude);
    case AugmentKind::kAutoContrast:
      return AutoContrast(image);
    case AugmentKind::kEqualize:
      return Equalize(image);
  }
}

}  // namespace gaccd
