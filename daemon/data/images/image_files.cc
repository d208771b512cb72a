#include "daemon/data/images/image_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

namespace fs = std::filesystem;

Status CannotList(const std::string& path, const std::error_code& error) {
  return {ErrorKind::kIo, StrCat("cannot list the folder '", path, "': ", error.message())};
}

// Follows symbolic links.
Result<bool> IsFolder(const fs::directory_entry& entry) {
  std::error_code error;
  const bool is_folder = entry.is_directory(error);
  if (!error) return is_folder;
  return Status(ErrorKind::kIo,
                StrCat("cannot open '", entry.path().string(), "': ", error.message()));
}

bool IsHidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// The path without extension.
std::string_view Stem(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  const std::size_t slash = path.rfind('/');
  return dot == std::string_view::npos || dot < slash ? path : path.substr(0, dot);
}

// Appends all files below `folder`.
Status AddFiles(const std::string& folder, std::vector<std::string>& files, TimedTicks& ticks) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::follow_directory_symlink,
                                      error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    GACCD_ASSIGN_OR_RETURN(const bool is_folder, IsFolder(*at));
    if (IsHidden(at->path())) {
      if (is_folder) at.disable_recursion_pending();
    } else if (!is_folder) {
      files.push_back(at->path().string());
    }
    GACCD_RETURN_IF_ERROR(ticks.Done());
  }
  return error ? CannotList(folder, error) : Status::Ok();
}

Status CheckStems(const std::vector<std::string>& files) {
  std::vector<std::string_view> stems;
  for (const std::string& file : files) stems.push_back(Stem(file));
  std::ranges::sort(stems);
  const auto twice = std::ranges::adjacent_find(stems);
  if (twice == stems.end()) return Status::Ok();
  std::string found;
  for (const std::string& file : files) {
    if (Stem(file) == *twice) found += StrCat(found.empty() ? "'" : " and '", file, "'");
  }
  return {ErrorKind::kData, StrCat("expected one image of a name, found ", found)};
}

}  // namespace

Result<std::vector<std::string>> ListClassFolders(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    GACCD_ASSIGN_OR_RETURN(const bool is_folder, IsFolder(*at));
    if (is_folder && !IsHidden(at->path())) names.push_back(at->path().filename().string());
  }
  if (error) return CannotList(path, error);
  std::ranges::sort(names);
  return names;
}

Result<std::vector<ImageFile>> ListImages(const std::string& path,
                                          const std::vector<std::string>& classes,
                                          const TickFunction& tick) {
  std::vector<ImageFile> images;
  TimedTicks ticks(tick);
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const std::string folder = StrCat(path, "/", classes[label]);
    std::vector<std::string> files;
    GACCD_RETURN_IF_ERROR(AddFiles(folder, files, ticks));
    if (files.empty()) {
      return Status(ErrorKind::kData,
                    StrCat(folder, ": expected images of this class, found none"));
    }
    std::ranges::sort(files);
    GACCD_RETURN_IF_ERROR(CheckStems(files));
    for (std::string& file : files) {
      images.push_back({.path = std::move(file), .label = static_cast<std::int32_t>(label)});
    }
    GACCD_RETURN_IF_ERROR(tick());
  }
  return images;
}

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
