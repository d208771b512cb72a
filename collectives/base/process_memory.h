// How much memory this process holds, and how much it can still get.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Bytes of physical memory without the pages of mapped files, which the kernel takes back when it
// must; 0 when /proc/self/status cannot be read. Thread-safe.
[[nodiscard]] std::int64_t OwnMemoryBytes();

// Bytes that the system can still give to this process: the least of what is available on the
// machine, in its memory cgroup, and below RLIMIT_AS. Nothing where /proc/meminfo cannot be read.
[[nodiscard]] std::optional<std::uint64_t> FreeMemoryBytes();

// The system refused `bytes` (0: not known how many) for `what`: kConfig, with the bytes that are
// free. Starting the job again would not help, so it is not to be requeued.
[[nodiscard]] Status NoMemory(std::string_view what, std::uint64_t bytes);

}  // namespace gaccd
