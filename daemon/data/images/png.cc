#include <fcntl.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/output.h"
#include "collectives/base/strings.h"
#include "daemon/data/images/image.h"

namespace gaccd {

namespace {

// libpng's error handler must not return: it longjmps into the function that called libpng. These
// functions, Header() and Rows(), therefore have no objects with destructors.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file) : left_(file) {}
  ~PngReader() {
    if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // False with a message() on errors. REQUIRES: Header() before Rows().
  bool Header();
  bool Rows(png_bytep* rows);

  [[nodiscard]] std::int64_t height() const { return png_get_image_height(png_, info_); }
  [[nodiscard]] std::int64_t width() const { return png_get_image_width(png_, info_); }
  [[nodiscard]] int bits() const { return png_get_bit_depth(png_, info_); }
  [[nodiscard]] bool color() const {
    return (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0;
  }
  [[nodiscard]] std::string message() const { return message_.data(); }
  [[nodiscard]] bool no_memory() const { return no_memory_; }

 private:
  static void Read(png_structp png, png_bytep to, png_size_t bytes) {
    auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (bytes > reader.left_.size()) png_error(png, "the file ends too early");
    std::memcpy(to, reader.left_.data(), bytes);
    reader.left_ = reader.left_.subspan(bytes);
  }
  [[noreturn]] static void Fail(png_structp png, png_const_charp message) {
    auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(reader.message_.data(), reader.message_.size(), "%s", message);
    std::longjmp(reader.failed_, 1);
  }
  static png_voidp Allocate(png_structp png, png_alloc_size_t bytes) {
    void* memory = std::malloc(bytes);
    if (memory == nullptr) static_cast<PngReader*>(png_get_mem_ptr(png))->no_memory_ = true;
    return memory;
  }
  static void Free(png_structp, png_voidp memory) { std::free(memory); }

  std::span<const std::byte> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  bool no_memory_ = false;
  std::jmp_buf failed_{};
  std::array<char, 256> message_{};
};

bool PngReader::Header() {
  if (setjmp(failed_) != 0) return false;
  // Warnings do not affect pixels.
  png_ = png_create_read_struct_2(
      PNG_LIBPNG_VER_STRING, this, Fail, [](png_structp, png_const_charp) {}, this, Allocate, Free);
  if (png_ != nullptr) info_ = png_create_info_struct(png_);
  if (info_ == nullptr) {
    no_memory_ = true;
    return false;
  }
  png_set_read_fn(png_, this, Read);
  png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller limits the pixels
  // Texts and colour profiles are not used, and a few kB of them may unpack to megabytes each.
  png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, /*num_chunks=*/-1);
  png_read_info(png_, info_);
  return true;
}

bool PngReader::Rows(png_bytep* rows) {
  if (setjmp(failed_) != 0) return false;
  png_set_palette_to_rgb(png_);
  if (!color()) png_set_expand_gray_1_2_4_to_8(png_);
  png_set_strip_alpha(png_);
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  png_read_image(png_, rows);
  png_read_end(png_, nullptr);
  return true;
}

}  // namespace

Result<Image> DecodePng(std::span<const std::byte> file, std::int64_t max_pixels) {
  const auto damaged = [](const PngReader& reader) {
    if (reader.no_memory()) throw std::bad_alloc();
    return Status(ErrorKind::kData, StrCat("damaged PNG image: ", reader.message()));
  };
  PngReader reader(file);
  if (!reader.Header()) return damaged(reader);
  if (reader.bits() > 8) {
    return Status(
        ErrorKind::kData,
        StrCat("expected a PNG image of at most 8 bits a channel, found ", reader.bits()));
  }
  GACCD_ASSIGN_OR_RETURN(
      Image image, MakeImage(reader.height(), reader.width(), reader.color() ? 3 : 1, max_pixels));
  std::vector<png_bytep> rows(static_cast<std::size_t>(image.height));
  const auto row = static_cast<std::size_t>(image.width * image.channels);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = image.pixels.data() + i * row;
  if (!reader.Rows(rows.data())) return damaged(reader);
  return image;
}

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
  GACCD_ASSIGN_OR_RETURN(FileDescriptor out, OpenFile(target, O_WRONLY | O_CREAT | O_TRUNC, kMode));
  GACCD_RETURN_IF_ERROR(WriteAll(out.get(), file, path));
  return out.Close() ? Status::Ok() : ErrnoStatus("cannot write", path);
}

Status CheckReplacesPng(const std::string& path) {
  return CheckReplaces(path, kMark, "an image that gaccd wrote", kHeaderBytes);
}

}  // namespace gaccd
