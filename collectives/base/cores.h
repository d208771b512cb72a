// The cores that this thread may run on, on machines of any size: cpu_set_t ends at core 1023, and
// the kernel refuses it where there may be more.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// Core c is bit c % 64 of word c / 64. Equally long on all threads of a machine.
using CoreMask = std::vector<std::uint64_t>;

// kOs with the system's words. `ask`: sched_getaffinity(2) of this thread, for tests another one.
using AskAffinity = std::function<int(std::size_t bytes, cpu_set_t* mask)>;
Result<CoreMask> AllowedCores(const AskAffinity& ask = [](std::size_t bytes, cpu_set_t* mask) {
  return ::sched_getaffinity(0, bytes, mask);
});

// Their numbers, ascending.
[[nodiscard]] std::vector<std::int64_t> CoreNumbers(const CoreMask& mask);

}  // namespace gaccd
