// A regular file, mapped read-only. Symbolic links are followed.
// The file must not be made shorter while it is mapped: reading beyond its new end is a SIGBUS, and
// so is a page that the disk cannot give. FindMapped() returns which file it was.
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
  // Errors: kIo with the reason; also for directories, FIFOs, devices and sockets (a FIFO is not
  // waited for).
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), static_cast<std::size_t>(opened_.st_size)};
  }

  // kData with both values: another size or time of change than when it was opened, or another file
  // at its path. A file that was removed is still mapped, and unchanged. kIo: it cannot be
  // determined.
  [[nodiscard]] Status CheckUnchanged() const;

 private:
  explicit MappedFile(std::string path) : path_(std::move(path)) {}

  std::string path_;
  int fd_ = -1;
  struct stat opened_ {};
  const void* data_ = nullptr;  // null for an empty file
  int known_ = -1;              // place in the table of FindMapped()
};

struct MappedPlace {
  const char* path = nullptr;  // null: no mapped file; cut, and with '?' for what JSON escapes
  std::int64_t byte = 0;       // from the start of the file
};
// For signal handlers: neither allocates nor locks. Knows the first kMaxKnown files that are
// mapped at a time.
inline constexpr std::size_t kMaxKnown = 32;
[[nodiscard]] MappedPlace FindMapped(const void* address);

}  // namespace gaccd
