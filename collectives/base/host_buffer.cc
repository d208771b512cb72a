#include "collectives/base/host_buffer.h"

#include <sys/mman.h>

#include "collectives/base/process_memory.h"

namespace gaccd {
namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Result<HostBuffer> HostBuffer::Allocate(std::size_t bytes, const char* what) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return NoMemory(what, bytes);
  }
  if (bytes >= kHugePage) (void)madvise(data, bytes, MADV_HUGEPAGE);
  buffer.data_ = {static_cast<std::byte*>(data), {bytes}};
  return buffer;
}

void UnmapMemory::operator()(std::byte* data) const { munmap(data, bytes); }

}  // namespace gaccd
