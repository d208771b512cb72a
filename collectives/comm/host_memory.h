// CommMemory in ordinary memory of this process: what single and threads give out.
#pragma once

#include <memory>

#include "collectives/comm/communicator.h"

namespace gaccd {

// `bytes` zeroed bytes, aligned to 4096; pages exist once they are written. kOs when the system has
// no memory left.
[[nodiscard]] Result<std::unique_ptr<CommMemory>> AllocateHostMemory(std::size_t bytes);

}  // namespace gaccd
