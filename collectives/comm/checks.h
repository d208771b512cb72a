// Argument checks shared by all communicators. Each returns kInternal with the operation, the
// expected and the actual value: wrong arguments are a bug of the caller. Pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// All buffers must be in `memory`: the memory kind of the communicator or, if it supports both, of
// the first buffer.

// Same count and type; a type that can be reduced; same memory or no overlap.
[[nodiscard]] Status CheckAllReduce(const ConstBuffer& in, const MutableBuffer& out,
                                    MemoryKind memory = MemoryKind::kHost);

// counts: one per rank, not negative; in has counts[rank] elements and out their sum; in is this
// rank's part of out, or does not overlap it.
[[nodiscard]] Status CheckAllGather(const ConstBuffer& in, std::span<const std::int64_t> counts,
                                    const MutableBuffer& out, int rank, int size,
                                    MemoryKind memory = MemoryKind::kHost);

// counts: as above; in has their sum and out counts[rank] elements; out is this rank's part of in,
// or does not overlap it.
[[nodiscard]] Status CheckReduceScatter(const ConstBuffer& in, std::span<const std::int64_t> counts,
                                        const MutableBuffer& out, int rank, int size,
                                        MemoryKind memory = MemoryKind::kHost);

// 0 <= root < size.
[[nodiscard]] Status CheckBroadcast(const MutableBuffer& buffer, int root, int size,
                                    MemoryKind memory = MemoryKind::kHost);

// operation: "send" or "receive"; peer: another rank of the group.
[[nodiscard]] Status CheckMessage(const char* operation, const ConstBuffer& message,
                                  MemoryKind memory, int peer, int rank, int size);

// Offset of the part of a rank: sum of counts[0..rank-1].
[[nodiscard]] std::size_t PartOffset(std::span<const std::int64_t> counts, int rank);

}  // namespace gaccd
