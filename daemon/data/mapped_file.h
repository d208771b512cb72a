// A regular file, mapped read-only. Symbolic links are followed. Reading beyond the end of a file
// that was truncated while mapped, or a page that the disk cannot read, raises SIGBUS; FindMapped()
// returns the file.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

class MappedFile {
 public:
  // kIo with the reason; also for directories, FIFOs (without blocking), devices and sockets.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), static_cast<std::size_t>(opened_.st_size)};
  }

  // kData with both values if size or modification time differ from when it was opened, or another
  // file is at its path; a removed file counts as unchanged. kIo if that cannot be determined.
  [[nodiscard]] Status CheckUnchanged() const;

 private:
  explicit MappedFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  int fd_ = -1;
  struct stat opened_ {};
  const void* data_ = nullptr;  // null for an empty file
  int known_ = -1;              // index in the table of FindMapped()
};

struct MappedPlace {
  const char* path = nullptr;  // null: none. Truncated, with '?' for characters that JSON escapes
  std::int64_t byte = 0;       // from the start of the file
};
// For signal handlers: neither allocates nor locks. Covers at most kMaxKnown files mapped at a
// time: the shards of a large data set stay mapped.
inline constexpr std::size_t kMaxKnown = 16384;
[[nodiscard]] MappedPlace FindMapped(const void* address);

}  // namespace gaccd
