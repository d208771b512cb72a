#include <algorithm>
#include <string_view>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/images/image.h"

namespace gaccd {
namespace {

using namespace std::string_view_literals;

enum class Format { kJpeg, kPng, kWebp, kOther };

Format DetectFormat(std::string_view file) {
  if (file.starts_with("\xFF\xD8\xFF"sv)) return Format::kJpeg;
  if (file.starts_with("\x89PNG\r\n\x1A\n"sv)) return Format::kPng;
  if (file.starts_with("RIFF"sv) &&
      file.substr(std::min(file.size(), std::size_t{8}), 4) == "WEBP") {
    return Format::kWebp;
  }
  return Format::kOther;
}

std::string_view OtherFormatName(std::string_view file) {
  if (file.empty()) return "an empty file";
  if (file.starts_with("GIF8"sv)) return "a GIF file";
  if (file.starts_with("BM"sv)) return "a BMP file";
  if (file.starts_with("II*\0"sv) || file.starts_with("MM\0*"sv)) return "a TIFF file";
  return "something else";
}

// For formats without partial decoding.
Result<ImagePart> SelectPart(Result<Image> image, const NeededPart& needed) {
  if (!image.ok()) return image.status();
  GACCD_ASSIGN_OR_RETURN(const Box part, needed(image->height, image->width));
  return ImagePart{std::move(image).value(), part};
}

Result<ImagePart> Decode(std::span<const std::byte> file, const DecodeOptions& decoding) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  switch (DetectFormat(text)) {
    case Format::kJpeg:
      return DecodeJpeg(file, decoding);
    case Format::kPng:
      return SelectPart(DecodePng(file, decoding.max_pixels), decoding.needed);
    case Format::kWebp:
      return SelectPart(DecodeWebp(file, decoding.max_pixels), decoding.needed);
    case Format::kOther:
      break;
  }
  return Status(ErrorKind::kData,
                StrCat("expected a JPEG, PNG or WebP image, found ", OtherFormatName(text)));
}

// ITU-R BT.601 luma with 16-bit weights, rounded, equal to PIL's "L".
void ToGrey(Image& image) {
  std::uint8_t* to = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const std::uint32_t r = image.pixels[i];
    const std::uint32_t g = image.pixels[i + 1];
    const std::uint32_t b = image.pixels[i + 2];
    *to++ = static_cast<std::uint8_t>((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16);
  }
  image.pixels.resize(image.pixels.size() / 3);
  image.channels = 1;
}

void ToRgb(Image& image) {
  std::vector<std::uint8_t> pixels;
  pixels.reserve(3 * image.pixels.size());
  for (const std::uint8_t grey : image.pixels) pixels.insert(pixels.end(), 3, grey);
  image.pixels = std::move(pixels);
  image.channels = 3;
}

}  // namespace

void ConvertChannels(Image& image, std::int64_t channels) {
  if (image.channels == 3 && channels == 1) ToGrey(image);
  if (image.channels == 1 && channels == 3) ToRgb(image);
}

Status CheckImageSize(std::int64_t height, std::int64_t width, std::int64_t max_pixels) {
  if (height >= 1 && width >= 1 && height <= max_pixels / width) return Status::Ok();
  return {ErrorKind::kData,
          StrCat("expected 1 to ", max_pixels, " pixels, found ", width, " x ", height)};
}

Result<Image> MakeImage(std::int64_t height, std::int64_t width, std::int64_t channels,
                        std::int64_t max_pixels) {
  GACCD_RETURN_IF_ERROR(CheckImageSize(height, width, max_pixels));
  Image image{.height = height, .width = width, .channels = channels, .pixels = {}};
  image.pixels.resize(static_cast<std::size_t>(height * width * channels));
  return image;
}

Result<ImagePart> DecodeImagePart(const std::string& name, std::span<const std::byte> file,
                                  std::int64_t channels, const NeededPart& needed, bool whole_file,
                                  std::int64_t max_pixels) {
  Result<ImagePart> part = Decode(file, {needed, whole_file, max_pixels});
  if (!part.ok()) return part.status().WithContext(name);
  ConvertChannels(part->image, channels);
  return part;
}

}  // namespace gaccd
