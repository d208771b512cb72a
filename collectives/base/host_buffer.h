// HostBuffer: page-aligned, zeroed memory from the operating system.
#pragma once

#include <cstddef>
#include <memory>

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

}  // namespace gaccd
