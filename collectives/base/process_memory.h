// How much memory this process holds, and how much it can still get.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

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

// Memory that the processes of a job on this machine share.
struct SharedMemory {
  std::uint64_t free_bytes = 0;
  std::string limit;  // what says so: "this machine", "the cgroup /slurm/job_7"
};

// What the system can still give: the least of what is available on the machine, and of what is
// left in each memory cgroup of this process, of version 1 or 2, and in those around it. Pages of
// files count as free there, as the kernel takes them back. Nothing where /proc/meminfo cannot be
// read. `root`: before /proc and /sys, for tests.
[[nodiscard]] std::optional<SharedMemory> FreeSharedMemory(const std::string& root = {});

// Bytes that this process may still map below RLIMIT_AS; nothing: it has no such limit.
[[nodiscard]] std::optional<std::uint64_t> FreeAddressSpace();

// Bytes that the system can still give to this process: the least of FreeSharedMemory()
// and FreeAddressSpace(). Nothing where /proc/meminfo cannot be read.
[[nodiscard]] std::optional<std::uint64_t> FreeMemoryBytes();

// The system refused `bytes` (0: not known how many) for `what`: kConfig, with the bytes that are
// free. Starting the job again would not help, so it is not to be requeued.
[[nodiscard]] Status NoMemory(std::string_view what, std::uint64_t bytes);

}  // namespace gaccd
