#include "collectives/base/process_memory.h"

#include <array>
#include <cstdio>

namespace gaccd {

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

}  // namespace gaccd
