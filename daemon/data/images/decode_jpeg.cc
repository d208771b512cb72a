#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs it
#include <new>
#include <utility>
#include <vector>

// The error numbers of jerror.h depend on a version that jpeglib.h defines.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "collectives/base/strings.h"
#include "daemon/data/images/image.h"

namespace gaccd {
namespace {

// Bounds the work: a progressive file may have any number of scans, each of a few bytes and over
// the complete image.
constexpr int kMaxScans = 500;

// libjpeg's error handler must not return: it longjmps into the function that called libjpeg. These
// functions, Header() to Finish(), therefore have no objects with destructors.
class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) { From(info).Fail(info); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && !IsHarmless(info->err->msg_code)) From(info).Fail(info);
    };
    errors_.output_message = [](j_common_ptr) {};
    info_.client_data = this;
  }
  ~JpegReader() {
    if (created_) jpeg_destroy_decompress(&info_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // To be called in this order; false with a message() on errors. Begin() selects at least the
  // columns [left, left + width), sets `left` to the first selected one, and starts at row `top`;
  // Rows() writes `rows` rows of info().output_width pixels; Finish() reads the file to its end,
  // with `row` as a buffer for one row.
  bool Header(std::span<const std::byte> file);
  bool Begin(std::size_t top, std::int64_t* left, std::int64_t width);
  bool Rows(std::size_t rows, std::uint8_t* pixels);
  bool Finish(std::uint8_t* row);

  // Of the whole image, which libjpeg keeps if there are several scans.
  [[nodiscard]] std::int64_t CoefficientBytes() const;

  [[nodiscard]] jpeg_decompress_struct& info() { return info_; }
  [[nodiscard]] std::string message() const { return message_.data(); }
  [[nodiscard]] bool no_memory() const { return no_memory_; }

 private:
  static JpegReader& From(j_common_ptr info) {
    return *static_cast<JpegReader*>(info->client_data);
  }
  [[noreturn]] void Fail(j_common_ptr info) {
    From(info).no_memory_ = info->err->msg_code == JERR_OUT_OF_MEMORY;
    info->err->format_message(info, message_.data());
    std::longjmp(failed_, 1);
  }
  // Warnings that do not affect pixels.
  static bool IsHarmless(int code) {
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
           code == JWRN_BOGUS_PROGRESSION;
  }
  static void CheckScans(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
    JpegReader& reader = From(info);
    std::snprintf(reader.message_.data(), reader.message_.size(),
                  "expected at most %d scans, found more", kMaxScans);
    std::longjmp(reader.failed_, 1);
  }

  bool no_memory_ = false;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  bool created_ = false;
  std::size_t top_ = 0;  // the first row that Rows() writes
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
    default:  // libjpeg fails if it cannot convert to RGB
      info_.out_color_space = JCS_RGB;
  }
  jpeg_calc_output_dimensions(&info_);
  return true;
}

std::int64_t JpegReader::CoefficientBytes() const {
  std::int64_t blocks = 0;
  for (int i = 0; i < info_.num_components; ++i) {
    const jpeg_component_info& component = info_.comp_info[i];
    blocks += std::int64_t{component.width_in_blocks} * component.height_in_blocks;
  }
  return blocks * std::int64_t{sizeof(JBLOCK)};
}

bool JpegReader::Begin(std::size_t top, std::int64_t* left, std::int64_t width) {
  if (setjmp(failed_) != 0) return false;
  top_ = top;
  jpeg_start_decompress(&info_);
  auto first = static_cast<JDIMENSION>(*left);
  auto columns = static_cast<JDIMENSION>(width);
  if (columns < info_.output_width) jpeg_crop_scanline(&info_, &first, &columns);
  *left = first;
  if (top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(top));
  return true;
}

bool JpegReader::Rows(std::size_t rows, std::uint8_t* pixels) {
  if (setjmp(failed_) != 0) return false;
  const std::size_t row = static_cast<std::size_t>(info_.output_width) *
                          static_cast<std::size_t>(info_.output_components);
  while (info_.output_scanline < top_ + rows) {
    JSAMPROW to = pixels + (info_.output_scanline - top_) * row;
    jpeg_read_scanlines(&info_, &to, 1);
  }
  return true;
}

bool JpegReader::Finish(std::uint8_t* row) {
  if (setjmp(failed_) != 0) return false;
  // Reads the last row: libjpeg does not decode rows that are skipped at the end.
  if (info_.output_scanline + 1 < info_.output_height) {
    jpeg_skip_scanlines(&info_, info_.output_height - info_.output_scanline - 1);
  }
  if (info_.output_scanline < info_.output_height) {
    JSAMPROW last = row;
    jpeg_read_scanlines(&info_, &last, 1);
  }
  jpeg_finish_decompress(&info_);
  return true;
}

// a * b / 255, rounded.
std::uint32_t MultiplyDiv255(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

// Converts inverted CMYK in place.
void CmykToRgb(Image& image) {
  std::uint8_t* to = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += 4) {
    const std::uint32_t light = image.pixels[i + 3];
    const std::array<std::uint8_t, 3> ink{image.pixels[i], image.pixels[i + 1],
                                          image.pixels[i + 2]};
    for (const std::uint8_t value : ink) {
      *to++ = static_cast<std::uint8_t>(light - MultiplyDiv255(255U - value, light));
    }
  }
  image.pixels.resize(image.pixels.size() / 4 * 3);
  image.channels = 3;
}

// Subsampled colours are interpolated, without neighbours at an edge of the decoded part.
Box WithBorder(const Box& box, std::int64_t height, std::int64_t width) {
  constexpr std::int64_t kBorder = 4;
  Box wider{.top = std::max(box.top - kBorder, std::int64_t{0}),
            .left = std::max(box.left - kBorder, std::int64_t{0})};
  wider.height = std::min(box.top + box.height + kBorder, height) - wider.top;
  wider.width = std::min(box.left + box.width + kBorder, width) - wider.left;
  return wider;
}

}  // namespace

Result<ImagePart> DecodeJpeg(std::span<const std::byte> file, const DecodeOptions& decoding) {
  const auto damaged = [](const JpegReader& reader) {
    if (reader.no_memory()) throw std::bad_alloc();
    return Status(ErrorKind::kData, StrCat("damaged JPEG image: ", reader.message()));
  };
  JpegReader reader;
  if (!reader.Header(file)) return damaged(reader);
  const jpeg_decompress_struct& info = reader.info();
  const std::int64_t height = info.output_height;
  const std::int64_t width = info.output_width;
  GACCD_RETURN_IF_ERROR(CheckImageSize(height, width, decoding.max_pixels));
  GACCD_ASSIGN_OR_RETURN(Box box, decoding.needed(height, width));
  // In incomplete progressive images libjpeg smooths blocks with their neighbours.
  const bool decode_all = jpeg_has_multiple_scans(&reader.info()) != FALSE;
  const Box read =
      decode_all ? Box{.height = height, .width = width} : WithBorder(box, height, width);
  std::int64_t left = read.left;
  if (!reader.Begin(static_cast<std::size_t>(read.top), &left, read.width)) return damaged(reader);
  GACCD_ASSIGN_OR_RETURN(Image image, MakeImage(read.height, info.output_width,
                                                info.output_components, decoding.max_pixels));
  const std::int64_t held = decode_all ? reader.CoefficientBytes() : 0;
  const auto rows = static_cast<std::size_t>(read.height);
  if (!reader.Rows(rows, image.pixels.data())) return damaged(reader);
  if (decoding.whole_file) {
    std::vector<std::uint8_t> row(info.output_width * static_cast<std::size_t>(image.channels));
    if (!reader.Finish(row.data())) return damaged(reader);
  }
  if (image.channels == 4) CmykToRgb(image);
  box.top -= read.top;
  box.left -= left;
  return ImagePart{std::move(image), box, held};
}

}  // namespace gaccd
