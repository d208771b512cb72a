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

}  // namespace gaccd
