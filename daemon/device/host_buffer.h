// HostBuffer: page-aligned memory from the operating system, zeroed, counted in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/base/result.h"

namespace gaccd {

struct UnmapMemory {
  std::size_t bytes = 0;
  void operator()(std::byte* data) const;
};

// Owns its memory; movable. Large buffers ask for huge pages, which halve the page-table misses of
// the flat parameter buffers.
class HostBuffer {
 public:
  HostBuffer() = default;
  // NoMemory() when the system has none left; `what` names the buffer in the message.
  static Result<HostBuffer> Allocate(std::size_t bytes, const char* what);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return data_.get_deleter().bytes; }

 private:
  std::unique_ptr<std::byte, UnmapMemory> data_;
};

// Bytes of physical memory that this process holds and that cannot be read again from a file: not
// the pages of programs, libraries and mapped data sets. Memory shared by several processes counts
// in proportion (Pss). Freed memory is returned to the system first. kOs when the kernel does not
// tell.
Result<std::int64_t> ResidentBytes();

// Bytes of the pages of `memory` that are in physical memory: an estimate, as the system counts.
// memory: begins at a page.
std::int64_t ResidentBytesOf(std::span<const std::byte> memory);

}  // namespace gaccd
