// Colour transforms, equal to torchvision's functions of these names on PIL images within one grey
// level.
#pragma once

#include "daemon/data/images/image.h"

namespace gaccd {

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
