#include "collectives/base/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

struct KibLine {
  std::string_view name;  // with its colon
  std::int64_t* kib;
};

// Lines that are not there leave their value as it is.
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
std::optional<std::uint64_t> ReadKibOf(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    unsigned long long kib = 0;
    if (!line.starts_with(key)) continue;
    if (std::sscanf(line.c_str() + key.size(), " %llu", &kib) == 1) return kib * 1024;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;  // "max" is no number
}

// Of the memory cgroup, version 2, that this process is in.
std::optional<std::uint64_t> FreeInCgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    const std::string folder = StrCat("/sys/fs/cgroup", line.substr(3));
    const auto most = ReadNumber(folder + "/memory.max");
    const auto used = ReadNumber(folder + "/memory.current");
    if (most && used) return *most - std::min(*most, *used);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> FreeAddressSpace() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const std::uint64_t used = ReadKibOf("/proc/self/status", "VmSize:").value_or(0);
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used);
}

}  // namespace

std::int64_t ProcessMemory::Bytes() {
  constexpr int kCalls = 64;  // other processes begin to use the memory as well
  std::int64_t own = 0;
  std::int64_t shared = 0;
  if (!ReadKib("/proc/self/status", {{"RssAnon:", &own}, {"RssShmem:", &shared}})) return 0;
  if (shared != shared_kib_ || calls_++ % kCalls == 0) {
    shared_kib_ = shared;
    proportion_kib_ = shared;  // without the proportion, as RSS has it
    if (shared > 0) ReadKib("/proc/self/smaps_rollup", {{"Pss_Shmem:", &proportion_kib_}});
  }
  return (own + proportion_kib_) * 1024;
}

std::optional<std::uint64_t> FreeMemoryBytes() {
  std::optional<std::uint64_t> least = ReadKibOf("/proc/meminfo", "MemAvailable:");
  if (!least) return std::nullopt;
  for (const auto& other : {FreeInCgroup(), FreeAddressSpace()}) {
    if (other) least = std::min(*least, *other);
  }
  return least;
}

Status NoMemory(std::string_view what, std::uint64_t bytes) {
  const auto free = FreeMemoryBytes();
  return {ErrorKind::kConfig,
          StrCat("no memory for ", what, bytes > 0 ? StrCat(": wanted ", bytes, " bytes") : "",
                 free ? StrCat(", ", *free, " are free") : "",
                 "; give the job more memory (--mem), or set a smaller --micro-batch")};
}

}  // namespace gaccd
