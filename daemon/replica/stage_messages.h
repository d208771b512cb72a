// What a stage of a pipeline exchanges with its neighbours, and the rings of places in the memory
// of a GPU where it lies meanwhile. Pure functions.
//
// On a GPU a message travels while the kernels before and after it run, so that it has a place of
// its own: a received value until the last kernel that reads it, a sent one, copied there, until it
// has left. How many places there are decides who waits for whom, see StageRings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "daemon/replica/prepared_graphs.h"
#include "daemon/replica/replica.h"

namespace gaccd {

// None: this stage has no such neighbour, or no backward.
[[nodiscard]] std::optional<ValueId> ValueOf(const StageEnds& ends, Replica::Message which);
// The buffer of a value; empty for none.
[[nodiscard]] MutableBuffer BufferOf(const Graph& graph, std::optional<ValueId> value, void* data,
                                     MemoryKind memory = MemoryKind::kHost);

// Places of the ring of such messages, see StageRings.
[[nodiscard]] std::int64_t PlacesOf(Replica::Message which, std::int64_t in_flight);

struct MessageRing {
  std::int64_t bytes = 0;  // of a place: the largest message; 0: there is none
  std::int64_t places = 0;
};

// By Replica::Message. A value that comes is read until the backward of its micro-batch, so there
// are as many places as micro-batches in flight, and one more, into which the next value comes
// before a place is free. Gradients have as many as micro-batches in flight, too: GPIPE goes back
// only when all have gone forward, while the stage after, which goes back at once, has sent them
// all; with fewer places it would stop, and its forwards with it. Of what is sent, one value is
// made while the one before leaves.
struct StageRings {
  std::array<MessageRing, 4> rings = {};

  [[nodiscard]] const MessageRing& operator[](Replica::Message which) const {
    return rings[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] std::int64_t bytes() const;  // of all places
};
[[nodiscard]] StageRings StageRingsOf(const PreparedGraphs& graphs, std::int64_t in_flight);

}  // namespace gaccd
