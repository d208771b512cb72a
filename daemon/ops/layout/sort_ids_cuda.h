// The rows of an embedding sorted by their ids, on the GPU: a stable radix sort of 8 bits a pass,
// as many passes as the ids have bytes. Nothing waits and nothing is allocated, so a graph can be
// captured from it.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// A row with its id: id << 32 | row. Sorted, they are in the order of their ids, and the rows of an
// id in their own.
using IdRow = std::uint64_t;

// The id of every row whose own is outside [0, rows): it sorts after those inside.
[[nodiscard]] constexpr std::uint32_t EndOfIds(std::int64_t rows) {
  return static_cast<std::uint32_t>(std::min<std::int64_t>(rows, std::int64_t{1} << 31));
}

// Returns in *sorted where the `count` sorted rows will be, in `scratch`: SortIdsScratchBytes()
// bytes of any content, aligned to 8. kConfig: count is 2^31 or more.
[[nodiscard]] std::size_t SortIdsScratchBytes(std::int64_t count);
Status EnqueueSortIds(const KernelStream& on, const std::int32_t* ids, std::int64_t count,
                      std::int64_t rows, void* scratch, const IdRow** sorted);

}  // namespace gaccd
