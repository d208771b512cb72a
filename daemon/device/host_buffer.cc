#include "daemon/device/host_buffer.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

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

Result<std::int64_t> ResidentBytes() {
#ifdef GACCD_SANITIZED
  // The allocator is another, and the kernel walks all pages of shadow memory for smaps_rollup.
  const std::int64_t counted = ProcessMemory().Bytes();
  if (counted > 0) return counted;
#else
  // The allocator still holds memory freed after loading, which would count now and be reused
  // later.
  malloc_trim(0);
#endif
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::int64_t bytes = 0;
  int found = 0;
  for (std::string line; std::getline(rollup, line);) {
    for (const std::string_view key : {"Pss_Anon:", "Pss_Shmem:"}) {
      if (!line.starts_with(key)) continue;
      bytes += std::stoll(line.substr(key.size())) * 1024;
      ++found;
    }
  }
  if (found == 2) return bytes;
  return Status(ErrorKind::kOs,
                "/proc/self/smaps_rollup has no lines 'Pss_Anon:' and 'Pss_Shmem:'");
}

std::int64_t CountResidentBytes(std::span<const std::byte> memory) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((memory.size() + page - 1) / page);
  // mincore() only reads, but takes a non-const pointer.
  if (mincore(const_cast<std::byte*>(memory.data()), memory.size(), resident.data()) != 0) return 0;
  return static_cast<std::int64_t>(page) *
         std::ranges::count_if(resident, [](unsigned char flags) { return (flags & 1) != 0; });
}

}  // namespace gaccd
