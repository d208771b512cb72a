// CommMemory in ordinary process memory, for single and thread communicators.
#pragma once

#include <memory>

#include "collectives/comm/communicator.h"

namespace gaccd {

// `bytes` zeroed bytes, aligned to 4096; pages are allocated when they are written. NoMemory() if
// the system has none left.
[[nodiscard]] Result<std::unique_ptr<CommMemory>> AllocateHostMemory(std::size_t bytes);

}  // namespace gaccd
