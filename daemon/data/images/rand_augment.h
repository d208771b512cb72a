// RandAugment (Cubuk et al. 2019): random operations out of 14, all with the same magnitude.
// Operations, magnitudes and pixels equal torchvision.transforms.RandAugment on PIL images, with
// nearest-neighbour interpolation and fill 0.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/config/job.h"
#include "daemon/data/images/image.h"

namespace gaccd {

enum class AugmentKind : std::uint8_t {  // in torchvision's order
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
[[nodiscard]] std::string_view Name(AugmentKind kind);  // as in torchvision: "ShearX"

struct Augmentation {
  AugmentKind kind = AugmentKind::kIdentity;
  // For shears the tangent of the angle; for translations pixels; for rotations degrees,
  // counterclockwise; for Brightness to Sharpness factor - 1; for Posterize bits; for Solarize a
  // grey level.
  double magnitude = 0;
};

// Whether the sign of the magnitude is random.
[[nodiscard]] bool IsSigned(AugmentKind kind);
// The absolute magnitude for an image of this size. REQUIRES: spec.magnitude <
// spec.num_magnitude_bins.
[[nodiscard]] double Magnitude(AugmentKind kind, const RandAugmentSpec& spec, std::int64_t height,
                               std::int64_t width);

// "ShearX -0.09", with all digits, or "Equalize".
[[nodiscard]] std::string Describe(const Augmentation& augmentation);

// Applies the augmentation, which does not change the size.
void Augment(Image& image, const Augmentation& augmentation);

}  // namespace gaccd
