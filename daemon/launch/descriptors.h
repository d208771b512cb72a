// File descriptors: how many this process may have open at once, and how many it will need.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"

namespace gaccd {

// Raises the soft limit to the hard one, and gives the limit that holds then. Once, early.
std::int64_t RaiseDescriptorLimit();

// The most that a rank of so many needs, which is rank 0. For every other rank: a connection for
// the heartbeat, one for MPI on another node, or a watch on its process on this node. And 64 for
// what does not grow: MPI itself, data, checkpoints, logs (a CPU rank has 18 of them open).
[[nodiscard]] constexpr std::int64_t DescriptorsNeeded(std::int64_t ranks) {
  return 64 + 2 * (ranks - 1);
}

// kConfig, with both numbers.
[[nodiscard]] Status CheckDescriptors(std::int64_t limit, std::int64_t ranks);

}  // namespace gaccd
