// Incremental decompression of a gzip file in memory, with verified checksums. As in gzip, several
// members are concatenated and zeros after the last member are ignored; other trailing data is an
// error.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <span>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

[[nodiscard]] bool IsGzip(std::span<const std::byte> file);  // by the first two bytes

// The maximum compression ratio of deflate (zlib's technical details).
inline constexpr std::size_t kMaxDeflateRatio = 1032;

class GzipReader {
 public:
  // `name` is for messages; it and `file` must outlive the reader.
  GzipReader(const std::string& name, std::span<const std::byte> file);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Fills `out` and returns the number of bytes: fewer only at the end of the data.
  // Errors: kData for a damaged or truncated file, kOs without memory.
  Result<std::size_t> Read(std::span<std::byte> out);

 private:
  Status Inflate();

  const std::string& name_;
  std::span<const std::byte> file_;
  z_stream stream_{};
  bool ready_ = false;
  bool ended_ = false;
};

}  // namespace gaccd
