// A regular file, mapped read-only. Symbolic links are followed.
// The file must not be made shorter while it is mapped: reading beyond its new end is a SIGBUS.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

class MappedFile {
 public:
  // Errors: kIo with the reason; also for directories, FIFOs, devices and sockets (a FIFO is not
  // waited for).
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);

  MappedFile(const void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), bytes_};
  }

 private:
  const void* data_;  // null for an empty file
  std::size_t bytes_;
};

}  // namespace gaccd
