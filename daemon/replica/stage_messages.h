// Messages between neighbour stages of a pipeline, and the rings of places for them in GPU memory.
// Pure functions.
//
// On a GPU a message travels while other kernels run, so it has its own place. A received value
// keeps it until the last kernel has read it; a sent value is copied there and keeps it until it
// was sent. The number of places decides which stage waits for which, see StageRings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "daemon/replica/prepared_graphs.h"
#include "daemon/replica/replica.h"

namespace gaccd {

// Empty: this stage has no such neighbour, or no backward.
[[nodiscard]] std::optional<ValueId> MessageValue(const StageEnds& ends, Replica::Message which);
// The buffer of a value; empty if there is none.
[[nodiscard]] MutableBuffer ValueBuffer(const Graph& graph, std::optional<ValueId> value,
                                        void* data, MemoryKind memory = MemoryKind::kHost);

// Number of places of the ring for this message, see StageRings.
[[nodiscard]] std::int64_t RingPlaces(Replica::Message which, std::int64_t in_flight);

struct MessageRing {
  std::int64_t bytes = 0;  // per place: the largest message; 0: no such message
  std::int64_t places = 0;
};

// By Replica::Message. A received value is read until the backward of its micro-batch, so its ring
// has one place per micro-batch in flight, plus one to receive the next value before a place is
// free. Rings of gradients have one place per micro-batch in flight too: with GPIPE a stage starts
// its backwards after all forwards, while the next stage starts its backwards at once and sends all
// gradients; with fewer places the next stage would block, and its forwards would wait. Rings of
// sent messages have two places: one is written while the other is sent.
struct StageRings {
  std::array<MessageRing, 4> rings = {};

  [[nodiscard]] const MessageRing& operator[](Replica::Message which) const {
    return rings[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] std::int64_t bytes() const;  // over all places
};
[[nodiscard]] StageRings PlanStageRings(const PreparedGraphs& graphs, std::int64_t in_flight);

}  // namespace gaccd
