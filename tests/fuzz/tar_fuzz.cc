// A tar file of images: every image is a part of it, with a label or a word why it has none.
#include "daemon/data/images/image_files.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzTar(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kClasses = 10;
  const auto input = std::as_bytes(std::span(data, size));
  std::vector<DamagedLabel> damaged;
  const auto images = IndexShard("input", input, kClasses, damaged, [] { return Status::Ok(); });
  if (!images.ok()) {
    FuzzCheck(images.status().kind() == ErrorKind::kData, "the content is to blame");
    return 0;
  }
  FuzzCheck(!images->empty(), "there is an image");
  for (const ImageFile& image : *images) {
    FuzzCheck(image.offset >= 0 && image.bytes >= 0 &&
                  image.offset + image.bytes <= static_cast<std::int64_t>(size),
              "an image is in the file");
    FuzzCheck(image.label >= 0 && image.label < kClasses && !image.path.empty(),
              "it has a name and a label");
  }
  for (const DamagedLabel& label : damaged) {
    FuzzCheck(label.sample >= 0 && label.sample < std::ssize(*images) && !label.why.ok(),
              "a damaged label is that of an image");
  }
  return 0;
}
