// Images of 8 bits a channel in memory, and how they are read from the bytes of a file.
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

// Images with more pixels are refused before any memory is taken for them.
inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;

// A JPEG, PNG or WebP file, by its first bytes whatever its name, as grey (channels 1) or RGB (3).
// The pixels are those of PIL's Image.open(file).convert("L" or "RGB"), to one grey level:
//   alpha is left out, not blended; palettes and 1, 2 and 4 bits become 8; gamma and colour
//   profiles are ignored; CMYK and YCCK of JPEG are inverted, as Adobe writes them, and converted;
//   the orientation of EXIF is not applied.
// Errors, all kData with `name`: another format; a truncated or damaged file, also where a viewer
// would show the rest of it; 16 bits a channel; animations; more than max_pixels. Thread-safe.
Result<Image> DecodeImage(const std::string& name, std::span<const std::byte> file,
                          std::int64_t channels, std::int64_t max_pixels = kMaxPixels);

// An image of which pixels outside of a part may be missing.
struct ImagePart {
  Image image;
  Box part;  // where in `image` it is
};
// Asked for height and width of an image when its header was read, before its pixels: what is
// needed of it. A box inside of the image, at least 1 x 1.
using NeededPart = std::function<Result<Box>(std::int64_t height, std::int64_t width)>;

// The same pixels, of this part at least: of a JPEG image, those far from it are not computed.
// whole_file: the rest of the file is read and checked, too, as by DecodeImage(); else damage
// behind the part may stay unnoticed. Errors: those of DecodeImage() and, with `name`, of `needed`.
Result<ImagePart> DecodeImagePart(const std::string& name, std::span<const std::byte> file,
                                  std::int64_t channels, const NeededPart& needed,
                                  bool whole_file = true, std::int64_t max_pixels = kMaxPixels);

}  // namespace gaccd
