#include "daemon/device/host_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Result<HostBuffer> HostBuffer::Allocate(std::size_t bytes, const char* what) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Status(ErrorKind::kOs,
                  StrCat("no memory for ", what, ": ", bytes, " bytes: ", std::strerror(errno)));
  }
  if (bytes >= kHugePage) (void)madvise(data, bytes, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<std::int64_t> ResidentBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.rfind("Pss:", 0) == 0) return std::stoll(line.substr(4)) * 1024;
  }
  return Status(ErrorKind::kOs, "/proc/self/smaps_rollup has no line 'Pss:'");
}

}  // namespace gaccd
