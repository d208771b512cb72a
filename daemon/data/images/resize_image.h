// Resizing of images, bit-identical to PIL's BILINEAR: every output pixel is a mean of input
// pixels, weighted by a triangle whose width is twice the scale factor, at least 2, which prevents
// aliasing; first along rows, then along columns, each rounded to 8 bits. PIL 13 and later use the
// other order if it is less work, a difference of at most one grey level.
#pragma once

#include <cstdint>

#include "daemon/data/images/image.h"

namespace gaccd {

// Resizes the part `from` of the image to height x width and returns the part `window` of the
// result; only that part is computed. Bit-identical on every machine. REQUIRES: `from` is inside
// the image, `window` inside the result, all sizes are at least 1.
[[nodiscard]] Image ResizeImage(const Image& image, const Box& from, std::int64_t height,
                                std::int64_t width, const Box& window);

}  // namespace gaccd
