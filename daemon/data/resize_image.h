// Resizing of images, bit by bit as PIL's BILINEAR: every output pixel is a mean of the pixels that
// it covers, weighted by a triangle as wide as twice the ratio, so that smaller images have no
// aliasing; first along the rows, then along the columns, both rounded to 8 bits. PIL from 13 on
// takes the other order where it is less work: a difference of at most one grey level.
#pragma once

#include <cstdint>

#include "daemon/data/image.h"

namespace gaccd {

// The part `from` of the image, resized to height x width, and of this the part `window`: only that
// is computed. REQUIRES: `from` is inside of the image, `window` inside of the result, all sizes at
// least 1. The weights have the same bits on every machine.
[[nodiscard]] Image ResizeImage(const Image& image, const Box& from, std::int64_t height,
                                std::int64_t width, const Box& window);

}  // namespace gaccd
