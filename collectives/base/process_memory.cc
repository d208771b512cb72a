#include "collectives/base/process_memory.h"

#include <array>
#include <cstdio>
#include <initializer_list>
#include <string_view>

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

}  // namespace gaccd
