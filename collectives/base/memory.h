// Memory used by this process, and memory still available to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Not thread-safe.
class ProcessMemory {
 public:
  // Bytes of physical memory without pages of mapped files, which the kernel can reclaim; memory
  // shared by several processes counts proportionally (Pss). 0 if /proc cannot be read. Takes
  // microseconds, occasionally milliseconds to read shared memory.
  [[nodiscard]] std::int64_t Bytes();

 private:
  std::int64_t shared_kib_ = 0;      // RssShmem when proportion_kib_ was read
  std::int64_t proportion_kib_ = 0;  // Pss_Shmem
  int calls_ = 0;
};

// Bytes of physical memory of this process that cannot be reloaded from a file: without pages of
// programs, libraries and mapped data sets. Memory shared by several processes counts
// proportionally (Pss). Returns freed memory to the system first. kOs if the kernel does not
// provide it.
Result<std::int64_t> ResidentBytes();

// Bytes of `memory`, which begins at a page, that are in physical memory: an estimate.
std::int64_t CountResidentBytes(std::span<const std::byte> memory);

// Memory available to the processes of a job on this machine.
struct SharedMemory {
  std::uint64_t free_bytes = 0;
  std::string limit;  // what limits it: "this machine", "the cgroup /slurm/job_7"
};

// Memory that the system can still provide: the minimum over the memory available on the machine
// and the memory left in each memory cgroup (version 1 or 2) of this process and its parents. Pages
// of files count as free, as the kernel can reclaim them. Empty if /proc/meminfo cannot be read.
// root: prefix of /proc and /sys, for tests.
[[nodiscard]] std::optional<SharedMemory> FreeSharedMemory(const std::string& root = {});

// Bytes that this process may still map below RLIMIT_AS; empty: no limit.
[[nodiscard]] std::optional<std::uint64_t> FreeAddressSpace();

// Bytes that the system can still provide to this process: the minimum of FreeSharedMemory() and
// FreeAddressSpace(). Empty if /proc/meminfo cannot be read.
[[nodiscard]] std::optional<std::uint64_t> FreeMemoryBytes();

// The error of a failed allocation of `bytes` (0: unknown) for `what`: Status::LacksMemory(), with
// the free bytes; kConfig, because a requeued job would fail again.
[[nodiscard]] Status NoMemory(std::string_view what, std::uint64_t bytes);

// HostBuffer: page-aligned, zeroed memory from the operating system.
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
