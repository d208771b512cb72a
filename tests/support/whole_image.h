// An image file decoded as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "daemon/data/images/image.h"

namespace gaccd {

inline Result<Image> DecodeImage(const std::string& name, std::span<const std::byte> file,
                                 std::int64_t channels, std::int64_t max_pixels = kMaxPixels) {
  const auto all = [](std::int64_t height, std::int64_t width) -> Result<Box> {
    return Box{.height = height, .width = width};
  };
  GACCD_ASSIGN_OR_RETURN(
      ImagePart part, DecodeImagePart(name, file, channels, all, /*whole_file=*/true, max_pixels));
  return std::move(part.image);
}

}  // namespace gaccd
