// Images of 8 bits per channel in memory, and their decoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;         // 1: grey; 3: RGB
  std::vector<std::uint8_t> pixels;  // [height, width, channels]
};

// A part of an image, in pixels.
struct Box {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  bool operator==(const Box&) const = default;
};

// Images with more pixels are rejected before memory is allocated for them.
inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;

// An image that contains at least a part of the file's image.
struct ImagePart {
  Image image;
  Box part;                     // its position in `image`
  std::int64_t held_bytes = 0;  // of the decoder, besides the pixels
};
// Called with the size of the image after its header was read; returns the part to decode: a box
// inside the image, at least 1 x 1.
using NeededPart = std::function<Result<Box>(std::int64_t height, std::int64_t width)>;

// Decodes a JPEG, PNG or WebP file, detected by its first bytes, as grey (channels 1) or RGB (3);
// of JPEG images only the needed part and its surroundings. Within one grey level, the pixels equal
// PIL's Image.open(file).convert("L" or "RGB"):
//   alpha is dropped, not blended; palettes and 1, 2 and 4 bits become 8; gamma and colour profiles
//   are ignored; CMYK and YCCK of JPEG are assumed inverted, as Adobe writes them, and converted;
//   EXIF orientation is not applied.
// Errors, all kData with `name`: another format; a truncated or damaged file, even if a viewer
// would show a part of it (whole_file false: damage after the needed part may remain undetected);
// 16 bits per channel; animations; more than max_pixels; those of `needed`. Thread-safe.
Result<ImagePart> DecodeImagePart(const std::string& name, std::span<const std::byte> file,
                                  std::int64_t channels, const NeededPart& needed,
                                  bool whole_file = true, std::int64_t max_pixels = kMaxPixels);

// A decoder per image format, called by DecodeImagePart(). Errors do not contain the file name.
// Without memory they throw std::bad_alloc, also if the library of the format lacks memory: the
// image is not damaged.

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

// Writes images as PNG files.

// kIo with the reason.
Status WritePng(const Image& image, const std::string& path);

// CheckReplaces() for an output of WritePng(): kIo for any other file, such as a data image.
Status CheckReplacesPng(const std::string& path);

}  // namespace gaccd
