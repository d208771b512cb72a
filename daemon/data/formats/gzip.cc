#include "daemon/data/formats/gzip.h"

#include <algorithm>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr int kGzipWindowBits = 15 + 16;              // zlib: + 16 expects a gzip header
constexpr std::size_t kChunk = std::size_t{1} << 30;  // zlib counts with 32 bits

}  // namespace

bool IsGzip(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b};
}

GzipReader::GzipReader(const std::string& name, std::span<const std::byte> file)
    : name_(name), file_(file) {
  ready_ = inflateInit2(&stream_, kGzipWindowBits) == Z_OK;
}

GzipReader::~GzipReader() {
  if (ready_) inflateEnd(&stream_);
}

Result<std::size_t> GzipReader::Read(std::span<std::byte> out) {
  if (!ready_) return Status(ErrorKind::kOs, StrCat(name_, ": no memory for zlib"));
  std::size_t done = 0;
  while (done < out.size() && !ended_) {
    const std::size_t space = std::min(kChunk, out.size() - done);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream_.avail_out = static_cast<uInt>(space);
    GACCD_RETURN_IF_ERROR(Inflate());
    done += space - stream_.avail_out;
  }
  return done;
}

// One call of inflate().
Status GzipReader::Inflate() {
  const std::size_t given = std::min(kChunk, file_.size());
  stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file_.data()));
  stream_.avail_in = static_cast<uInt>(given);
  const int code = inflate(&stream_, Z_NO_FLUSH);
  file_ = file_.subspan(given - stream_.avail_in);
  switch (code) {
    case Z_OK:
      return Status::Ok();
    case Z_STREAM_END:
      ended_ = std::ranges::all_of(file_, [](std::byte b) { return b == std::byte{0}; });
      if (!ended_) inflateReset(&stream_);
      return Status::Ok();
    case Z_BUF_ERROR:
      return {ErrorKind::kData, StrCat(name_, ": the compressed data ends too early (truncated)")};
    case Z_MEM_ERROR:
      return {ErrorKind::kOs, StrCat(name_, ": no memory for zlib")};
    default:
      return {ErrorKind::kData,
              StrCat(name_, ": the compressed data is damaged, ", file_.size(),
                     " bytes before its end: ",
                     stream_.msg != nullptr ? stream_.msg : "zlib gives no reason")};
  }
}

}  // namespace gaccd
