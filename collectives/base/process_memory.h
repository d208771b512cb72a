// How much memory this process holds.
#pragma once

#include <cstdint>

namespace gaccd {

// Bytes of physical memory without the pages of mapped files, which the kernel takes back when it
// must; 0 when /proc/self/status cannot be read. Thread-safe.
[[nodiscard]] std::int64_t OwnMemoryBytes();

}  // namespace gaccd
