#include <algorithm>
#include <span>

#include "daemon/data/images/image.h"
#include "daemon/data/images/image_ops.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/support/whole_image.h"

// JPEG, PNG and WebP. What is decoded has the promised size, is the same when it is decoded again,
// and can be resized.
int gaccd::FuzzImage(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kFewPixels = 1 << 16;
  const auto input = std::as_bytes(std::span(data, size));
  const auto color = gaccd::DecodeImage("input", input, 3, kFewPixels);
  const auto grey = gaccd::DecodeImage("input", input, 1, kFewPixels);
  gaccd::FuzzCheck(color.ok() == grey.ok(), "channels decide about no error");
  if (!color.ok()) {
    gaccd::FuzzCheck(color.status().kind() == gaccd::ErrorKind::kData, "the content is to blame");
    return 0;
  }
  const std::int64_t pixels = color->height * color->width;
  gaccd::FuzzCheck(pixels >= 1 && pixels <= kFewPixels, "the limit holds");
  gaccd::FuzzCheck(color->pixels.size() == static_cast<std::size_t>(3 * pixels),
                   "RGB has its size");
  gaccd::FuzzCheck(grey->pixels.size() == static_cast<std::size_t>(pixels), "grey has its size");
  const auto again = gaccd::DecodeImage("input", input, 3, kFewPixels);
  gaccd::FuzzCheck(again.ok() && again->pixels == color->pixels,
                   "it is decoded to the same pixels");
  const gaccd::Box part{.top = color->height / 2,
                        .left = color->width / 3,
                        .height = color->height - color->height / 2,
                        .width = color->width - color->width / 3};
  const auto cut = gaccd::DecodeImagePart(
      "input", input, 3,
      [&part](std::int64_t, std::int64_t) -> gaccd::Result<gaccd::Box> { return part; });
  gaccd::FuzzCheck(cut.ok(), "a part of what can be decoded can be decoded");
  for (std::int64_t y = 0; y < part.height; ++y) {
    const auto* whole = color->pixels.data() + 3 * ((part.top + y) * color->width + part.left);
    const auto* found =
        cut->image.pixels.data() + 3 * ((cut->part.top + y) * cut->image.width + cut->part.left);
    gaccd::FuzzCheck(std::equal(whole, whole + 3 * part.width, found), "it has the same pixels");
  }
  (void)gaccd::ResizeImage(*color, part, 5, 7, {.top = 1, .left = 2, .height = 3, .width = 4});
  (void)gaccd::ResizeImage(*grey, part, 1, 1, {.height = 1, .width = 1});
  return 0;
}
