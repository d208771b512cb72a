// A function for each format of images, called by DecodeImage(). Errors are without the name of the
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/data/image.h"

namespace gaccd {

// What to decode: see DecodeImagePart().
struct Decoding {
  std::int64_t max_pixels = kMaxPixels;
  const NeededPart* needed = nullptr;  // null: the whole image
  bool whole_file = true;
};

// With the channels that the file has, grey or RGB.
Result<ImagePart> DecodeJpeg(std::span<const std::byte> file, const Decoding& decoding);
Result<Image> DecodePng(std::span<const std::byte> file, std::int64_t max_pixels);
Result<Image> DecodeWebp(std::span<const std::byte> file, std::int64_t max_pixels);

// kData for sizes below 1 or more than max_pixels.
Status CheckImageSize(std::int64_t height, std::int64_t width, std::int64_t max_pixels);
// An image with memory for its pixels. Errors as above.
Result<Image> MakeImage(std::int64_t height, std::int64_t width, std::int64_t channels,
                        std::int64_t max_pixels);

}  // namespace gaccd
