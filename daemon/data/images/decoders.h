// A decoder per image format, called by DecodeImagePart(). Errors do not contain the file name.
// Without memory they throw std::bad_alloc, also if the library of the format lacks memory: the
// image is not damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/data/images/image.h"

namespace gaccd {

// Arguments of DecodeImagePart().
struct DecodeOptions {
  const NeededPart& needed;
  bool whole_file;
  std::int64_t max_pixels;
};

// Images have the channels of the file, grey or RGB.
Result<ImagePart> DecodeJpeg(std::span<const std::byte> file, const DecodeOptions& decoding);
Result<Image> DecodePng(std::span<const std::byte> file, std::int64_t max_pixels);
Result<Image> DecodeWebp(std::span<const std::byte> file, std::int64_t max_pixels);

// kData for sizes below 1 and for more than max_pixels.
Status CheckImageSize(std::int64_t height, std::int64_t width, std::int64_t max_pixels);
// To grey or RGB, as DecodeImagePart().
void ConvertChannels(Image& image, std::int64_t channels);
// An image of zeros. Errors as above.
Result<Image> MakeImage(std::int64_t height, std::int64_t width, std::int64_t channels,
                        std::int64_t max_pixels);

}  // namespace gaccd
