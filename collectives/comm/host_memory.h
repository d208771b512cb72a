// CommMemory in ordinary memory of this process: what single and threads give out.
#pragma once

#include <memory>

#include "collectives/comm/communicator.h"

namespace gaccd {

// `bytes` zeroed bytes, aligned to 4096; pages exist once they are written. NoMemory() when the
// system has none left.
[[nodiscard]] Result<std::unique_ptr<CommMemory>> AllocateHostMemory(std::size_t bytes);

}  // namespace gaccd
