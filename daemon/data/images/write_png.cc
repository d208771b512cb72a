#include "daemon/data/images/write_png.h"

#include <png.h>

#include "collectives/base/strings.h"

namespace gaccd {

Status WritePng(const Image& image, const std::string& path) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  if (png_image_write_to_file(&png, path.c_str(), /*convert_to_8bit=*/0, image.pixels.data(),
                              /*row_stride=*/0, /*colormap=*/nullptr) != 0) {
    return Status::Ok();
  }
  return {ErrorKind::kIo, StrCat("cannot write '", path, "': ", png.message)};
}

}  // namespace gaccd
