// The gradient of an embedding: rows are sorted by id, then divided into parts of equal size, so
// that frequent and rare ids use the same number of warps.

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/sort_ids_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

constexpr std::int64_t kRowsPerPart = kWarp;
constexpr unsigned kPerLane = 4;  // columns per lane, 32 apart
constexpr unsigned kColumns = kPerLane * kWarp;
constexpr unsigned kBatch = 4;  // rows loaded before they are added

__global__ void __launch_bounds__(kThreads) ClearKernel(float* values, std::int64_t elements) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < elements; i += step) {
    values[i] = 0;
  }
}

// Rows sorted by id, and memory for the sums of parts of an id: [parts, 2, columns]. First those of
// ids that began in an earlier part, then those of ids that begin in this part.
struct Parts {
  const IdRow* rows;
  std::int64_t count;
  std::uint32_t end;  // of the ids
  std::int64_t columns;
  float* sums;

  __device__ std::uint32_t IdAt(std::int64_t place) const {
    return static_cast<std::uint32_t>(rows[place] >> 32);
  }
  // Whether the row at `place` has the id of the previous row.
  __device__ bool Continues(std::int64_t place) const {
    return place > 0 && place < count && IdAt(place) == IdAt(place - 1);
  }
  __device__ float* PartSums(std::int64_t part, bool begins_here) const {
    return sums + (2 * part + (begins_here ? 1 : 0)) * columns;
  }
};

// Consecutive rows of a part with the same id: the sums of a lane's columns.
struct Run {
  std::uint32_t id;
  bool begins_here;
  float sums[kPerLane];

  __device__ void Start(std::uint32_t new_id, bool begins) {
    id = new_id;
    begins_here = begins;
    for (float& sum : sums) sum = 0;
  }
  // Writes to the table, or, if the id is in other parts too, to the sums of this part.
  __device__ void Write(const Parts& parts, std::int64_t part, std::int64_t column, bool ends_here,
                        float* dtable) const {
    if (id >= parts.end) return;
    const bool whole = begins_here && ends_here;
    float* to = whole ? dtable + id * parts.columns : parts.PartSums(part, begins_here);
#pragma unroll
    for (unsigned k = 0; k < kPerLane; ++k) {
      const std::int64_t c = column + k * kWarp;
      if (c < parts.columns) to[c] = whole ? to[c] + sums[k] : sums[k];
    }
  }
};

// Loads the rows from place `first` of the part on; zeros for rows outside of it.
template <typename T>
__device__ inline void LoadBatch(const T* dy, const Parts& parts, IdRow mine, unsigned first,
                                 std::int64_t column, float (&values)[kBatch][kPerLane]) {
#pragma unroll
  for (unsigned j = 0; j < kBatch; ++j) {
    const IdRow row = __shfl_sync(kAllLanes, mine, static_cast<int>(first + j));
    const T* from = dy + static_cast<std::int64_t>(row & 0xffffffffU) * parts.columns;
#pragma unroll
    for (unsigned k = 0; k < kPerLane; ++k) {
      const std::int64_t c = column + k * kWarp;
      values[j][k] = (row >> 32) < parts.end && c < parts.columns ? ToFloat(from[c]) : 0.0F;
    }
  }
}

// A warp processes 128 columns of a part.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumPartsKernel(const T* dy, Parts parts, std::int64_t slices, float* dtable) {
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const std::int64_t part = warp / slices;
  const std::int64_t begin = part * kRowsPerPart;
  if (begin >= parts.count) return;
  const std::int64_t lane = threadIdx.x % kWarp;
  const std::int64_t column = warp % slices * kColumns + lane;
  const std::int64_t place = begin + lane;
  const IdRow mine = place < parts.count ? parts.rows[place] : ~IdRow{0};
  Run run;
  run.Start(parts.IdAt(begin), !parts.Continues(begin));
  for (unsigned first = 0; first < kRowsPerPart; first += kBatch) {
    float values[kBatch][kPerLane];
    LoadBatch(dy, parts, mine, first, column, values);
#pragma unroll
    for (unsigned j = 0; j < kBatch; ++j) {
      const auto id = static_cast<std::uint32_t>(
          __shfl_sync(kAllLanes, mine, static_cast<int>(first + j)) >> 32);
      if (id != run.id) {
        run.Write(parts, part, column, true, dtable);
        run.Start(id, true);
      }
#pragma unroll
      for (unsigned k = 0; k < kPerLane; ++k) run.sums[k] += values[j][k];
    }
  }
  run.Write(parts, part, column, !parts.Continues(begin + kRowsPerPart), dtable);
}

// The first part after `part` without a row of this id. The id is in part + 1.
__device__ inline std::int64_t FindIdEnd(const Parts& parts, std::int64_t part, std::uint32_t id) {
  std::int64_t low = part + 2;
  std::int64_t high = (parts.count + kRowsPerPart - 1) / kRowsPerPart;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (parts.IdAt(middle * kRowsPerPart) == id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// A block processes 128 columns of the id with which a part ends, if it begins in this part and
// ends in a later one.
__global__ void __launch_bounds__(kThreads)
    AddPartsKernel(Parts parts, std::int64_t slices, float* dtable) {
  __shared__ float of_warps[kWarps][kColumns];
  const std::int64_t part = blockIdx.x / slices;
  const std::int64_t next = (part + 1) * kRowsPerPart;
  if (!parts.Continues(next)) return;
  const std::uint32_t id = parts.IdAt(next);
  const bool began_before =
      parts.IdAt(part * kRowsPerPart) == id && parts.Continues(part * kRowsPerPart);
  if (id >= parts.end || began_before) return;
  const std::int64_t count = FindIdEnd(parts, part, id) - part;
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const std::int64_t first_column = blockIdx.x % slices * kColumns;
  float sums[kPerLane] = {};
#pragma unroll 4
  for (std::int64_t p = count * warp / kWarps; p < count * (warp + 1) / kWarps; ++p) {
    const float* of_part = parts.PartSums(part + p, p == 0);
#pragma unroll
    for (unsigned k = 0; k < kPerLane; ++k) {
      const std::int64_t c = first_column + k * kWarp + lane;
      if (c < parts.columns) sums[k] += of_part[c];
    }
  }
#pragma unroll
  for (unsigned k = 0; k < kPerLane; ++k) of_warps[warp][k * kWarp + lane] = sums[k];
  __syncthreads();
  const std::int64_t column = first_column + threadIdx.x;
  if (threadIdx.x >= kColumns || column >= parts.columns) return;
  float sum = 0;
  for (unsigned w = 0; w < kWarps; ++w) sum += of_warps[w][threadIdx.x];
  dtable[id * parts.columns + column] += sum;
}

std::size_t SortBytes(std::int64_t count) { return (SortIdsScratchBytes(count) + 15) / 16 * 16; }

}  // namespace

std::size_t EmbeddingGradientScratchBytes(std::int64_t count, std::int64_t columns) {
  const auto parts = static_cast<std::size_t>(BlocksFor(count, kRowsPerPart));
  return SortBytes(count) + parts * 2 * static_cast<std::size_t>(columns) * sizeof(float);
}

Status EnqueueEmbeddingGradient(const KernelStream& on, DType dtype, const void* dy,
                                const std::int32_t* ids, std::int64_t count, Matrix size,
                                float* dtable, bool add, void* scratch) {
  constexpr const char* kWhat = "embedding_gradient";
  if (!add) {
    const std::int64_t elements = size.rows * size.columns;
    const LaunchShape shape{on.Blocks(elements, kThreads), kThreads};
    GACCD_RETURN_IF_ERROR(Launch(ClearKernel, shape, on.stream, kWhat, dtable, elements));
  }
  Parts parts{nullptr, count, OutOfRangeId(size.rows), size.columns,
              reinterpret_cast<float*>(static_cast<char*>(scratch) + SortBytes(count))};
  GACCD_RETURN_IF_ERROR(EnqueueSortIds(on, ids, count, size.rows, scratch, &parts.rows));
  const std::int64_t slices = BlocksFor(size.columns, kColumns);
  const std::int64_t items = BlocksFor(count, kRowsPerPart) * slices;
  const LaunchShape of_parts{BlocksFor(items, kWarps), kThreads};
  GACCD_RETURN_IF_ERROR(WithFloat(dtype, [&](auto t) {
    return Launch(SumPartsKernel<decltype(t)>, of_parts, on.stream, kWhat,
                  static_cast<const decltype(t)*>(dy), parts, slices, dtable);
  }));
  return Launch(AddPartsKernel, {static_cast<unsigned>(items), kThreads}, on.stream, kWhat, parts,
                slices, dtable);
}

KernelResult MakeEmbeddingGradientCuda(const CudaRequest& request) {
  const Matrix dy = request.size();
  return MakeCall(
      request,
      [on = request.on, dtype = request.dtype(), count = dy.rows,
       table = ToMatrix(request.outputs[0])](const Call& c) {
        return EnqueueEmbeddingGradient(on, dtype, c.inputs[0], c.in<std::int32_t>(1), count, table,
                                        c.out<float>(0), c.add[0], c.scratch);
      },
      EmbeddingGradientScratchBytes(dy.rows, dy.columns));
}

}  // namespace gaccd
