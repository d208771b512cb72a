// RandAugment (Cubuk et al. 2019): several operations of 14, drawn at random, all with one
// strength. Operations, strengths and pixels are those of torchvision.transforms.RandAugment on PIL
// images: the nearest pixel, and 0 for what comes from outside of the image.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/config/job.h"
#include "daemon/data/image.h"

namespace gaccd {

enum class AugmentKind : std::uint8_t {  // in the order of torchvision's
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr std::int64_t kAugmentKinds = 14;
[[nodiscard]] std::string_view Name(AugmentKind kind);  // torchvision's: "ShearX"

struct Augmentation {
  AugmentKind kind = AugmentKind::kIdentity;
  // Of shears the tangent of the angle; of translations pixels; of a rotation degrees, against the
  // clock; of Brightness to Sharpness the factor - 1; of Posterize bits; of Solarize a grey level.
  double magnitude = 0;
};

// Whether the magnitude has a sign that is drawn, too.
[[nodiscard]] bool IsSigned(AugmentKind kind);
// Without its sign, of an image of that size. REQUIRES: spec.magnitude < spec.num_magnitude_bins.
[[nodiscard]] double MagnitudeOf(AugmentKind kind, const RandAugmentSpec& spec, std::int64_t height,
                                 std::int64_t width);

// "ShearX -0.09", with all digits; "Equalize".
[[nodiscard]] std::string Describe(const Augmentation& augmentation);

// Does it; the size stays.
void Augment(Image& image, const Augmentation& augmentation);

}  // namespace gaccd
