#include "daemon/data/images/image_arrays.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/formats/idx.h"
#include "daemon/data/formats/npy.h"
#include "daemon/data/images/decoders.h"
#include "daemon/data/mapped_file.h"

namespace gaccd {
namespace {

Result<Array> LoadArray(const std::string& path, NodeShare* share) {
  GACCD_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()),
                              file->bytes().size());
  return text.starts_with("\x93NUMPY") ? LoadNpy(path) : LoadIdx(path, share);
}

}  // namespace

Result<ImageArray> LoadImageArray(const std::string& path, NodeShare* share) {
  ImageArray images;
  GACCD_ASSIGN_OR_RETURN(images.array, LoadArray(path, share));
  const Array& array = images.array;
  const Shape& shape = array.shape;
  const bool has_channels = shape.size() == 4 && (shape[3] == 1 || shape[3] == 3);
  if (array.type != StoredType::kU8 || !(shape.size() == 3 || has_channels) || shape[0] < 1) {
    return Status(ErrorKind::kData,
                  StrCat(array.name,
                         ": expected images as bytes (u8), [samples, height, width] or [samples, "
                         "height, width, 1 or 3 channels], found ",
                         Name(array.type), " of shape ", ToString(shape)));
  }
  const Status size = CheckImageSize(shape[1], shape[2], kMaxPixels);
  if (!size.ok()) return size.WithContext(array.name);
  images.height = shape[1];
  images.width = shape[2];
  if (has_channels) images.channels = shape[3];
  return images;
}

Result<std::vector<std::int64_t>> LoadImageLabels(const std::string& path, const ImageArray& images,
                                                  NodeShare* share) {
  GACCD_ASSIGN_OR_RETURN(const Array array, LoadArray(path, share));
  if (IsFloat(array.type) || array.shape != Shape{images.samples()}) {
    return Status(ErrorKind::kData,
                  StrCat(array.name, ": expected ", images.samples(),
                         " labels, integers, as many as images in ", images.array.name, ", found ",
                         Name(array.type), " of shape ", ToString(array.shape)));
  }
  std::vector<std::int64_t> labels(static_cast<std::size_t>(images.samples()));
  VisitStored(array.type, [&](auto element) {
    using T = decltype(element);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      T label{};
      std::memcpy(&label, array.data.data() + i * sizeof label, sizeof label);
      labels[i] = static_cast<std::int64_t>(label);
    }
  });
  return labels;
}

Result<ImagePart> CopyImagePart(const ImageArray& images, std::int64_t index, std::int64_t channels,
                                const NeededPart& needed) {
  GACCD_ASSIGN_OR_RETURN(const Box box, needed(images.height, images.width));
  GACCD_ASSIGN_OR_RETURN(Image image,
                         MakeImage(box.height, box.width, images.channels, kMaxPixels));
  const std::byte* from = images.array.data.data() +
                          index * images.height * images.width * images.channels +
                          (box.top * images.width + box.left) * images.channels;
  const std::int64_t row = box.width * images.channels;
  for (std::int64_t y = 0; y < box.height; ++y) {
    std::memcpy(image.pixels.data() + y * row, from + y * images.width * images.channels,
                static_cast<std::size_t>(row));
  }
  ConvertChannels(image, channels);
  return ImagePart{std::move(image), Box{.height = box.height, .width = box.width}};
}

}  // namespace gaccd
