#include <webp/decode.h>

#include <new>

#include "collectives/base/strings.h"
#include "daemon/data/images/image.h"

namespace gaccd {
namespace {

std::string_view ErrorText(VP8StatusCode code) {
  switch (code) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "the file ends too early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "it uses a feature that libwebp does not have";
    default:
      return "libwebp cannot decode it";
  }
}

Status Damaged(VP8StatusCode code) {
  if (code == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  return {ErrorKind::kData, StrCat("damaged WebP image: ", ErrorText(code))};
}

}  // namespace

Result<Image> DecodeWebp(std::span<const std::byte> file, std::int64_t max_pixels) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(file.data());
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) {
    return Status(ErrorKind::kInternal, "libwebp is older than its header");
  }
  if (const auto code = WebPGetFeatures(data, file.size(), &config.input); code != VP8_STATUS_OK) {
    return Damaged(code);
  }
  if (config.input.has_animation != 0) {
    return Status(ErrorKind::kData, "expected one WebP image, found an animation");
  }
  GACCD_ASSIGN_OR_RETURN(Image image,
                         MakeImage(config.input.height, config.input.width, 3, max_pixels));
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = image.pixels.data(),
                          .stride = static_cast<int>(3 * image.width),
                          .size = image.pixels.size()};
  const auto code = WebPDecode(data, file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (code != VP8_STATUS_OK) return Damaged(code);
  return image;
}

}  // namespace gaccd
