// MemoryPlan: the offset of every value of a graph in one arena, and the size of that arena.
// Computed from the graph alone before anything runs, so that a login node can plan the memory of a
// job.
//
// A graph with cuts (Function::ends_segment) runs segment by segment; between two segments of one
// micro-batch, other micro-batches may run. Values that live across a cut are in a separate arena,
// one per micro-batch; the other arena is shared.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/autograd/graph.h"

namespace gaccd {

struct MemoryPlan {
  static constexpr std::int64_t kAlignment = 64;  // bytes
  static constexpr std::int64_t kNone = -1;

  // By value. storage[v] is the value whose memory v uses: itself, or the input of a view or an
  // in-place function.
  std::vector<ValueId> storage;
  // By value: byte offset in its arena, for activations and outputs that own their storage; kNone
  // for all others.
  std::vector<std::int64_t> offset;
  std::vector<bool> kept;  // by value: it lives across a cut, in the arena of the micro-batch
  std::int64_t arena_bytes = 0;
  std::int64_t kept_bytes = 0;  // size of the arena of one micro-batch
};

// Two values overlap in memory only if one is never read after the other was written. micro_steps:
// per update.
MemoryPlan PlanMemory(const Graph& graph, std::int64_t micro_steps = 1);

}  // namespace gaccd
