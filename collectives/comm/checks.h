// Argument checks that all communicators share. Each returns kInternal with the operation, the
// expected and the found value: wrong arguments are a fault of the caller, not of the environment.
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/base/buffer.h"
#include "collectives/base/result.h"

namespace gaccd {

// All buffers must be in `memory`, which is that of the communicator, or for one that takes both,
// that of the first buffer.

// Same count and type; a type that is computed with; the same memory or no overlap.
[[nodiscard]] Status CheckAllReduce(const ConstBuffer& in, const MutableBuffer& out,
                                    MemoryKind memory = MemoryKind::kHost);

// counts: one per rank, none negative; in has counts[rank] elements and out their sum; in is this
// rank's part of out, or they do not overlap.
[[nodiscard]] Status CheckAllGather(const ConstBuffer& in, std::span<const std::int64_t> counts,
                                    const MutableBuffer& out, int rank, int size,
                                    MemoryKind memory = MemoryKind::kHost);

// counts: as above; in has their sum and out counts[rank] elements; out is this rank's part of in,
// or they do not overlap.
[[nodiscard]] Status CheckReduceScatter(const ConstBuffer& in, std::span<const std::int64_t> counts,
                                        const MutableBuffer& out, int rank, int size,
                                        MemoryKind memory = MemoryKind::kHost);

// 0 <= root < size.
[[nodiscard]] Status CheckBroadcast(const MutableBuffer& buffer, int root, int size,
                                    MemoryKind memory = MemoryKind::kHost);

// operation: "send" or "receive"; peer: another rank of the group.
[[nodiscard]] Status CheckMessage(const char* operation, const ConstBuffer& message,
                                  MemoryKind memory, int peer, int rank, int size);

// Where the part of each rank starts in the whole: sum of counts[0..rank-1].
[[nodiscard]] std::size_t OffsetOf(std::span<const std::int64_t> counts, int rank);

}  // namespace gaccd
