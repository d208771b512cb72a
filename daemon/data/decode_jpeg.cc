#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <utility>

// In this order.
#include <jerror.h>
#include <jpeglib.h>

#include "collectives/base/strings.h"
#include "daemon/data/decoders.h"

namespace gaccd {
namespace {

// A progressive file may have any number of scans over the whole image, at a few bytes each.
constexpr int kMaxScans = 500;

// libjpeg reports errors by a call that must not return: it jumps back into the function that
// called libjpeg. These functions, Header() and Rows(), have no objects with destructors.
class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { Of(info).Fail(info); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !LosesNothing(info->err->msg_code)) Of(info).Fail(info);
    };
    errors_.output_message = [](j_common_ptr) {};
    info_.client_data = this;
  }
  ~JpegReader() {
    if (created_) jpeg_destroy_decompress(&info_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Both: false with a message. The second, after the first, writes output_size() bytes.
  bool Header(std::span<const std::byte> file);
  bool Rows(std::uint8_t* pixels);

  [[nodiscard]] jpeg_decompress_struct& info() { return info_; }
  [[nodiscard]] std::string message() const { return message_.data(); }

 private:
  static JpegReader& Of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }
  [[noreturn]] void Fail(j_common_ptr info) {
    info->err->format_message(info, message_.data());
    std::longjmp(failed_, 1);
  }
  // Warnings of files in which every pixel is there.
  static bool LosesNothing(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
           code == JWRN_BOGUS_PROGRESSION;
  }
  static void CheckScans(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
    JpegReader& reader = Of(info);
    std::snprintf(reader.message_.data(), reader.message_.size(),
                  "expected at most %d scans, found more", kMaxScans);
    std::longjmp(reader.failed_, 1);
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  bool created_ = false;
  std::jmp_buf failed_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
};

bool JpegReader::Header(std::span<const std::byte> file) {
  if (setjmp(failed_) != 0) return false;
  jpeg_create_decompress(&info_);
  created_ = true;
  progress_.progress_monitor = CheckScans;
  info_.progress = &progress_;
  jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  jpeg_read_header(&info_, TRUE);
  switch (info_.jpeg_color_space) {
    case JCS_GRAYSCALE:
      info_.out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      info_.out_color_space = JCS_CMYK;
      break;
    default:  // libjpeg refuses what cannot become RGB
      info_.out_color_space = JCS_RGB;
  }
  jpeg_calc_output_dimensions(&info_);
  return true;
}

bool JpegReader::Rows(std::uint8_t* pixels) {
  if (setjmp(failed_) != 0) return false;
  jpeg_start_decompress(&info_);
  const std::size_t row = static_cast<std::size_t>(info_.output_width) *
                          static_cast<std::size_t>(info_.output_components);
  while (info_.output_scanline < info_.output_height) {
    JSAMPROW to = pixels + info_.output_scanline * row;
    jpeg_read_scanlines(&info_, &to, 1);
  }
  jpeg_finish_decompress(&info_);
  return true;
}

// a * b / 255, rounded.
std::uint32_t ShareOf(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Of inverted CMYK, in place.
void CmykToRgb(Image& image) {
  std::uint8_t* to = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += 4) {
    const std::uint32_t light = image.pixels[i + 3];
    const std::array<std::uint8_t, 3> ink{image.pixels[i], image.pixels[i + 1],
                                          image.pixels[i + 2]};
    for (const std::uint8_t value : ink) {
      *to++ = static_cast<std::uint8_t>(light - ShareOf(255U - value, light));
    }
  }
  image.pixels.resize(image.pixels.size() / 4 * 3);
  image.channels = 3;
}

}  // namespace

Result<Image> DecodeJpeg(std::span<const std::byte> file, std::int64_t max_pixels) {
  const auto damaged = [](const JpegReader& reader) {
    return Status(ErrorKind::kData, StrCat("damaged JPEG image: ", reader.message()));
  };
  JpegReader reader;
  if (!reader.Header(file)) return damaged(reader);
  const jpeg_decompress_struct& info = reader.info();
  GACCD_ASSIGN_OR_RETURN(Image image, MakeImage(info.output_height, info.output_width,
                                                info.output_components, max_pixels));
  if (!reader.Rows(image.pixels.data())) return damaged(reader);
  if (image.channels == 4) CmykToRgb(image);
  return image;
}

}  // namespace gaccd
