// Argument checks that all communicators share. Each returns kInternal with the operation, the
// expected and the found value: wrong arguments are a fault of the caller, not of the environment.
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/base/buffer.h"
#include "collectives/base/result.h"

namespace gaccd {

// Same count and type; a type that can be summed; the same memory or no overlap; host memory.
[[nodiscard]] Status CheckAllReduceSum(const ConstBuffer& in, const MutableBuffer& out);

// counts: one per rank, none negative; in has counts[rank] elements and out their sum.
[[nodiscard]] Status CheckAllGather(const ConstBuffer& in, std::span<const std::int64_t> counts,
                                    const MutableBuffer& out, int rank, int size);

// counts: as above; in has their sum and out counts[rank] elements; in and out do not overlap.
[[nodiscard]] Status CheckReduceScatter(const ConstBuffer& in, std::span<const std::int64_t> counts,
                                        const MutableBuffer& out, int rank, int size);

// 0 <= root < size; host memory.
[[nodiscard]] Status CheckBroadcast(const MutableBuffer& buffer, int root, int size);

// Where the part of each rank starts in the whole: sum of counts[0..rank-1].
[[nodiscard]] std::size_t OffsetOf(std::span<const std::int64_t> counts, int rank);

}  // namespace gaccd
