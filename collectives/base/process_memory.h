// How much memory this process holds.
#pragma once

#include <cstdint>

namespace gaccd {

// Not thread-safe.
class ProcessMemory {
 public:
  // Bytes of physical memory without the pages of mapped files, which the kernel takes back when it
  // must; memory that several processes share counts in proportion (Pss). 0 when /proc cannot be
  // read. A call takes microseconds, and now and then milliseconds for the shared memory.
  [[nodiscard]] std::int64_t Bytes();

 private:
  std::int64_t shared_kib_ = 0;      // RssShmem when proportion_kib_ was read
  std::int64_t proportion_kib_ = 0;  // Pss_Shmem
  int calls_ = 0;
};

}  // namespace gaccd
