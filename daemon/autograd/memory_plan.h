// MemoryPlan: where every value of a graph lives in one arena, and how large that arena is. Made
// before anything runs, from the graph alone, so that a login node knows the bytes of a job.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/autograd/graph.h"

namespace gaccd {

struct MemoryPlan {
  static constexpr std::int64_t kAlignment = 64;  // bytes
  static constexpr std::int64_t kNone = -1;

  // By value. storage[v] is the value whose memory v uses: itself, or the input of a view or of a
  // function that runs in place.
  std::vector<ValueId> storage;
  // By value: bytes from the start of the arena, for activations and outputs that own their
  // storage; kNone for all others.
  std::vector<std::int64_t> offset;
  std::int64_t arena_bytes = 0;
};

// Two values overlap in memory only if the one is never read after the other was written.
MemoryPlan PlanMemory(const Graph& graph);

}  // namespace gaccd
