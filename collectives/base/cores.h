// The cores that this thread may run on, for any number of cores: cpu_set_t ends at core 1023, and
// the kernel rejects it on larger machines.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// Core c is bit c % 64 of word c / 64. All threads of a machine have masks of the same length.
using CoreMask = std::vector<std::uint64_t>;

// kOs with the system's message. ask: sched_getaffinity(2) of this thread; tests replace it.
using GetAffinity = std::function<int(std::size_t bytes, cpu_set_t* mask)>;
Result<CoreMask> AllowedCores(const GetAffinity& ask = [](std::size_t bytes, cpu_set_t* mask) {
  return ::sched_getaffinity(0, bytes, mask);
});

// The numbers of the cores, ascending.
[[nodiscard]] std::vector<std::int64_t> CoreNumbers(const CoreMask& mask);

}  // namespace gaccd
