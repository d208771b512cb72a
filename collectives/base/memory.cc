#include "collectives/base/memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <vector>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

struct KibLine {
  std::string_view name;  // including the colon
  std::int64_t* kib;
};

// Missing lines leave their value unchanged.
bool ReadKib(const char* path, std::initializer_list<KibLine> wanted) {
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return false;
  std::array<char, 128> line{};
  while (std::fgets(line.data(), line.size(), file) != nullptr) {
    for (const KibLine& one : wanted) {
      if (!std::string_view(line.data()).starts_with(one.name)) continue;
      long kib = 0;
      if (std::sscanf(line.data() + one.name.size(), "%ld", &kib) == 1) *one.kib = kib;
    }
  }
  std::fclose(file);
  return true;
}

// "MemAvailable:   1234 kB" of a file of /proc, in bytes.
std::optional<std::uint64_t> ReadKibField(const std::string& path, std::string_view key) {
  std::int64_t kib = -1;
  ReadKib(path.c_str(), {{key, &kib}});
  return kib < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(kib) * 1024);
}

std::optional<std::uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;  // "max" is not a number
}

// File names of a version of memory cgroups.
struct CgroupFiles {
  std::string folder;  // root of the hierarchy
  std::string limit_file, used_file;
  std::string_view inactive, active;  // lines of memory.stat with pages of files
};

// Free bytes in one group; empty: no limit.
std::optional<std::uint64_t> FreeInGroup(const CgroupFiles& files, const std::string& group) {
  const std::string folder = StrCat(files.folder, group, "/");
  const auto limit = ReadNumber(folder + files.limit_file);
  const auto used = ReadNumber(folder + files.used_file);
  if (!limit || !used) return std::nullopt;
  std::uint64_t held = *used;
  std::ifstream stat(folder + "memory.stat");
  std::string key;
  for (std::uint64_t value = 0; stat >> key >> value;) {
    if (key == files.inactive || key == files.active) held -= std::min(held, value);
  }
  return *limit - std::min(*limit, held);
}

// Applies the limits of a group and its parents. In a container that sees only its part of the tree
// the path does not exist, and the top is its own group.
void LimitByGroups(const CgroupFiles& files, std::string group, SharedMemory* memory) {
  for (;;) {
    const auto free = FreeInGroup(files, group);
    if (free && *free < memory->free_bytes) {
      *memory = {*free, StrCat("the cgroup ", group.empty() ? "/" : group)};
    }
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

}  // namespace

std::optional<SharedMemory> FreeSharedMemory(const std::string& root) {
  const auto available = ReadKibField(root + "/proc/meminfo", "MemAvailable:");
  if (!available) return std::nullopt;
  SharedMemory memory{*available, "this machine"};
  const std::string mount = root + "/sys/fs/cgroup";
  const CgroupFiles version_2{mount, "memory.max", "memory.current", "inactive_file",
                              "active_file"};
  const CgroupFiles version_1{mount + "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file", "total_active_file"};
  std::ifstream groups(root + "/proc/self/cgroup");  // "4:memory:/slurm/job_7", "0::/slurm/job_7"
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (kinds.empty()) LimitByGroups(version_2, group, &memory);
    if (HasPart(kinds, "memory")) LimitByGroups(version_1, group, &memory);
  }
  return memory;
}

std::optional<std::uint64_t> FreeAddressSpace() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const std::uint64_t used = ReadKibField("/proc/self/status", "VmSize:").value_or(0);
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used);
}

std::int64_t ProcessMemory::Bytes() {
  constexpr int kCalls = 64;  // other processes may start to use the memory
  std::int64_t own = 0;
  std::int64_t shared = 0;
  if (!ReadKib("/proc/self/status", {{"RssAnon:", &own}, {"RssShmem:", &shared}})) return 0;
  if (shared != shared_kib_ || calls_++ % kCalls == 0) {
    shared_kib_ = shared;
    proportion_kib_ = shared;  // without Pss: counted fully, as in RSS
    if (shared > 0) ReadKib("/proc/self/smaps_rollup", {{"Pss_Shmem:", &proportion_kib_}});
  }
  return (own + proportion_kib_) * 1024;
}

Result<std::int64_t> ResidentBytes() {
#ifdef GACCD_SANITIZED
  // Sanitizers replace the allocator, and for smaps_rollup the kernel walks all shadow pages.
  const std::int64_t counted = ProcessMemory().Bytes();
  if (counted > 0) return counted;
#else
  // The allocator still holds memory freed after loading, which would count now and be reused
  // later.
  malloc_trim(0);
#endif
  std::int64_t own = -1;
  std::int64_t shared = -1;
  ReadKib("/proc/self/smaps_rollup", {{"Pss_Anon:", &own}, {"Pss_Shmem:", &shared}});
  if (own >= 0 && shared >= 0) return (own + shared) * 1024;
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

std::optional<std::uint64_t> FreeMemoryBytes() {
  const auto shared = FreeSharedMemory();
  if (!shared) return std::nullopt;
  return std::min(shared->free_bytes, FreeAddressSpace().value_or(shared->free_bytes));
}

Status NoMemory(std::string_view what, std::uint64_t bytes) {
  const auto free = FreeMemoryBytes();
  return Status::LacksMemory(
      StrCat("no memory for ", what, bytes > 0 ? StrCat(": wanted ", bytes, " bytes") : "",
             free ? StrCat(", ", *free, " are free") : "",
             "; give the job more memory (--mem), or set a smaller --micro-batch"));
}

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Anonymous memory, from a boundary of huge pages on if it can hold one; MAP_FAILED without memory.
void* MapAligned(std::size_t bytes) {
  const std::size_t spare = bytes < kHugePage || bytes > SIZE_MAX - kHugePage ? 0 : kHugePage;
  void* const mapped =
      mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED || spare == 0) return mapped;
  auto* const first = static_cast<std::byte*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(first) % kHugePage;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = (before + bytes + page - 1) / page * page;
  if (before > 0) (void)munmap(first, before);
  if (used < bytes + spare) (void)munmap(first + used, bytes + spare - used);
  (void)madvise(first + before, bytes, MADV_HUGEPAGE);
  return first + before;
}

}  // namespace

Result<HostBuffer> HostBuffer::Allocate(std::size_t bytes, const char* what) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = MapAligned(bytes);
  if (data == MAP_FAILED) {
    return NoMemory(what, bytes);
  }
  buffer.data_ = {static_cast<std::byte*>(data), {bytes}};
  return buffer;
}

void UnmapMemory::operator()(std::byte* data) const { munmap(data, bytes); }

}  // namespace gaccd
