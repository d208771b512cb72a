// Sorts the rows of an embedding by id on the GPU: a stable radix sort with 8 bits per pass and one
// pass per byte of the ids. Never waits or allocates, so it can be captured.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// A row with its id: id << 32 | row. Sorts by id, and rows of the same id by row.
using IdRow = std::uint64_t;

// Replaces ids outside [0, rows): sorts after all valid ids.
[[nodiscard]] constexpr std::uint32_t OutOfRangeId(std::int64_t rows) {
  return static_cast<std::uint32_t>(std::min<std::int64_t>(rows, std::int64_t{1} << 31));
}

// Sets *sorted to the address of the `count` sorted rows in `scratch`: SortIdsScratchBytes() bytes
// of any content, aligned to 8. kConfig: count is 2^31 or more.
[[nodiscard]] std::size_t SortIdsScratchBytes(std::int64_t count);
Status EnqueueSortIds(const KernelStream& on, const std::int32_t* ids, std::int64_t count,
                      std::int64_t rows, void* scratch, const IdRow** sorted);

}  // namespace gaccd
