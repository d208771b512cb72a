// MemoryPlan: where every value of a graph lives in one arena, and how large that arena is. Made
// before anything runs, from the graph alone, so that a login node knows the bytes of a job.
//
// A graph that is cut (Function::ends_segment) runs segment by segment, and between two segments of
// one micro-batch the others run, if there are others. What lives on across a cut is then in an
// arena of its own, one for each micro-batch; all share the other one.
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
  // By value: bytes from the start of its arena, for activations and outputs that own their
  // storage; kNone for all others.
  std::vector<std::int64_t> offset;
  std::vector<bool> kept;  // by value: it lives across a cut, in the arena of the micro-batch
  std::int64_t arena_bytes = 0;
  std::int64_t kept_bytes = 0;  // of the arena of one micro-batch
};

// Two values overlap in memory only if the one is never read after the other was written.
// micro_steps: of an update.
MemoryPlan PlanMemory(const Graph& graph, std::int64_t micro_steps = 1);

}  // namespace gaccd
