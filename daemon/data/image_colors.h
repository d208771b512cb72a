// Changes of colours, as torchvision's functions of these names on PIL images, to one grey level.
#pragma once

#include "daemon/data/image.h"

namespace gaccd {

// factor 1: no change. Brightness 0: black; contrast 0: the mean grey; saturation 0: grey.
void AdjustBrightness(Image& image, double factor);
void AdjustContrast(Image& image, double factor);
void AdjustSaturation(Image& image, double factor);
// shift: in turns of the colour circle, in [-0.5, 0.5]. Grey images stay.
void AdjustHue(Image& image, double shift);
// factor 0: every pixel inside of the border is the mean of its 3 x 3 neighbours, itself weighted
// by 5. Images of fewer than 3 rows or columns stay.
void AdjustSharpness(Image& image, double factor);

// Keeps the `bits` highest bits of every value, in [0, 8].
void Posterize(Image& image, int bits);
// Values from `threshold` on become 255 - value.
void Solarize(Image& image, double threshold);
// Of each channel by itself: the least value becomes 0, the largest 255.
void AutoContrast(Image& image);
// Of each channel by itself: about as many pixels of every value.
void Equalize(Image& image);

}  // namespace gaccd
