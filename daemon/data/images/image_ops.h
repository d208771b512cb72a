// Operations on whole images, equal to those of PIL.
#pragma once

#include <cstdint>

#include "daemon/data/images/image.h"

namespace gaccd {

// Resizing of images, bit-identical to PIL's BILINEAR: every output pixel is a mean of input
// pixels, weighted by a triangle whose width is twice the scale factor, at least 2, which prevents
// aliasing; first along rows, then along columns, each rounded to 8 bits. PIL 13 and later use the
// other order if it is less work, a difference of at most one grey level.

// Resizes the part `from` of the image to height x width and returns the part `window` of the
// result; only that part is computed. Bit-identical on every machine. REQUIRES: `from` is inside
// the image, `window` inside the result, all sizes are at least 1.
[[nodiscard]] Image ResizeImage(const Image& image, const Box& from, std::int64_t height,
                                std::int64_t width, const Box& window);

// Colour transforms, equal to torchvision's functions of these names on PIL images within one grey
// level.

// factor 1: no change. Factor 0 of brightness: black; of contrast: the mean grey level; of
// saturation: grey.
void AdjustBrightness(Image& image, double factor);
void AdjustContrast(Image& image, double factor);
void AdjustSaturation(Image& image, double factor);
// shift: in turns of the colour circle, in [-0.5, 0.5]. Grey images are unchanged.
void AdjustHue(Image& image, double shift);
// factor 0: every pixel inside the border becomes the mean of its 3 x 3 neighbourhood, itself
// weighted by 5. Images of fewer than 3 rows or columns are unchanged.
void AdjustSharpness(Image& image, double factor);

// Keeps the `bits` highest bits of every value, in [0, 8].
void Posterize(Image& image, int bits);
// Replaces each value of at least `threshold` by 255 - value.
void Solarize(Image& image, double threshold);
// Scales each channel so that its smallest value becomes 0 and its largest 255.
void AutoContrast(Image& image);
// Equalizes the histogram of each channel.
void Equalize(Image& image);

}  // namespace gaccd
