#include "daemon/data/images/write_png.h"

#include <fcntl.h>
#include <png.h>

#include <algorithm>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/output_file.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::size_t kHeaderBytes = 33;  // the signature and the chunk IHDR
// The chunk "Software: gaccd", with its length and checksum: an image of others does not have it.
constexpr std::string_view kMark("\0\0\0\x0EtEXtSoftware\0gaccd\x4E\x44\xC9\xE5", 26);

}  // namespace

Status WritePng(const Image& image, const std::string& path) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string file(bytes, '\0');
  if (png_image_write_to_memory(&png, file.data(), &bytes, /*convert_to_8bit=*/0,
                                image.pixels.data(), /*row_stride=*/0, /*colormap=*/nullptr) == 0) {
    return {ErrorKind::kIo, StrCat("cannot write '", path, "': ", png.message)};
  }
  file.resize(bytes);
  file.insert(kHeaderBytes, kMark);
  GACCD_ASSIGN_OR_RETURN(const std::string target, OutputTarget(path));
  constexpr unsigned kMode = 0666;  // before the umask
  GACCD_ASSIGN_OR_RETURN(const FileDescriptor out,
                         OpenFile(target, O_WRONLY | O_CREAT | O_TRUNC, kMode));
  return WriteAll(out.get(), file, path);
}

Status CheckReplacesPng(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(const std::string target, OutputTarget(path));
  if (!PathExists(target)) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(const std::string found, ReadStart(target, kHeaderBytes + kMark.size()));
  if (found.empty() || found.substr(std::min(kHeaderBytes, found.size())) == kMark) return {};
  return {ErrorKind::kIo,
          StrCat("'", path, "' exists and is not an image that gaccd wrote: it is not replaced")};
}

}  // namespace gaccd
