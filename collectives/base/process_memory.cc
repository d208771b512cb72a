#include "collectives/base/process_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// "MemAvailable:   1234 kB" of a file of /proc, in bytes.
std::optional<std::uint64_t> ReadKib(const char* path, std::string_view key) {
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
  const std::uint64_t used = ReadKib("/proc/self/status", "VmSize:").value_or(0);
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used);
}

}  // namespace

std::int64_t OwnMemoryBytes() {
  std::FILE* const file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  std::int64_t sum = 0;
  std::array<char, 128> line{};
  while (std::fgets(line.data(), line.size(), file) != nullptr) {
    long kib = 0;
    if (std::sscanf(line.data(), "RssAnon: %ld", &kib) == 1 ||
        std::sscanf(line.data(), "RssShmem: %ld", &kib) == 1) {
      sum += kib * 1024;
    }
  }
  std::fclose(file);
  return sum;
}

std::optional<std::uint64_t> FreeMemoryBytes() {
  std::optional<std::uint64_t> least = ReadKib("/proc/meminfo", "MemAvailable:");
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
