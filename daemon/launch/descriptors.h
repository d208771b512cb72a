// File descriptors: the limit of this process, and how many it needs.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"

namespace gaccd {

// Raises the soft limit to the hard one, and returns the resulting limit. Call once, early.
std::int64_t RaiseDescriptorLimit();

// The maximum over the ranks, which is that of rank 0: for every other rank a connection for the
// heartbeat and one for MPI on another node or a watch on its process on this node; and 64 for
// everything else: MPI itself, data, checkpoints, logs (a CPU rank has 18 of them open).
[[nodiscard]] constexpr std::int64_t DescriptorsNeeded(std::int64_t ranks) {
  return 64 + 2 * (ranks - 1);
}

// kConfig, with both numbers, if the limit is too low.
[[nodiscard]] Status CheckDescriptors(std::int64_t limit, std::int64_t ranks);

}  // namespace gaccd
