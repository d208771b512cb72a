// HostBuffer: page-aligned, zeroed memory from the operating system.
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

// Owns its memory; movable. Large buffers request huge pages, which halve the page-table misses of
// the flat parameter buffers.
class HostBuffer {
 public:
  HostBuffer() = default;
  // NoMemory() if the system has none left; `what` names the buffer in the message.
  static Result<HostBuffer> Allocate(std::size_t bytes, const char* what);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return data_.get_deleter().bytes; }

 private:
  std::unique_ptr<std::byte, UnmapMemory> data_;
};

// Bytes of physical memory of this process that cannot be reloaded from a file: without pages of
// programs, libraries and mapped data sets. Memory shared by several processes counts
// proportionally (Pss). Returns freed memory to the system first. kOs if the kernel does not
// provide it.
Result<std::int64_t> ResidentBytes();

// Bytes of `memory`, which begins at a page, that are in physical memory: an estimate.
std::int64_t CountResidentBytes(std::span<const std::byte> memory);

}  // namespace gaccd
