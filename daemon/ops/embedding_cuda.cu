// Embeddings and positions.
#include <algorithm>
#include <bit>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/sequence_kernels_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kBlocksPerMultiprocessor = 8;

// Blocks for `items` of which a block takes `per_block` at once; loops cover the rest.
unsigned BlocksOf(const KernelStream& on, std::int64_t items, std::int64_t per_block) {
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  return std::min(most, BlocksFor(items, per_block));
}

__device__ inline std::int64_t Thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t Threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    EmbeddingKernel(const std::int32_t* ids, std::int64_t count, const float* table,
                    std::int64_t rows, std::int64_t columns, T* y) {
  for (std::int64_t n = Thread() / kWarp; n < count; n += Threads() / kWarp) {
    const std::int64_t id = ids[n];
    const bool is_row = id >= 0 && id < rows;
    for (std::int64_t c = threadIdx.x % kWarp; c < columns; c += kWarp) {
      y[n * columns + c] = FromFloat<T>(is_row ? table[id * columns + c] : NAN);
    }
  }
}

template <typename T>
Status EmbeddingOf(const KernelStream& on, const std::int32_t* ids, std::int64_t count,
                   const float* table, Matrix size, void* y) {
  return Launch(EmbeddingKernel<T>, {BlocksOf(on, count, kWarps), kThreads}, on.stream, "embedding",
                ids, count, table, size.rows, size.columns, static_cast<T*>(y));
}

// The lanes whose row of ids, from `first` on, has this id and comes before `end`.
__device__ inline unsigned Matches(const std::int32_t* ids, std::int64_t first, std::int64_t end,
                                   std::int32_t id) {
  const std::int64_t n = first + threadIdx.x % kWarp;
  return __ballot_sync(kAllLanes, n < end && ids[n] == id ? 1 : 0);
}

// A warp takes 32 columns of the sum for an id, at the first row that has it.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    EmbeddingGradientKernel(const T* dy, const std::int32_t* ids, std::int64_t count,
                            std::int64_t rows, std::int64_t columns, std::int64_t parts,
                            float* dtable) {
  const std::int64_t lane = threadIdx.x % kWarp;
  for (std::int64_t item = Thread() / kWarp; item < count * parts; item += Threads() / kWarp) {
    const std::int64_t n = item / parts;
    const std::int64_t column = item % parts * kWarp + lane;
    const std::int32_t id = ids[n];
    bool is_first = id >= 0 && id < rows;
    for (std::int64_t m = 0; is_first && m < n; m += kWarp) {
      is_first = Matches(ids, m, n, id) == 0;
    }
    if (!is_first) continue;
    float sum = 0;
    for (std::int64_t first = n; first < count; first += kWarp) {
      for (unsigned found = Matches(ids, first, count, id); found != 0; found &= found - 1) {
        const std::int64_t m = first + std::countr_zero(found);
        if (column < columns) sum += ToFloat(dy[m * columns + column]);
      }
    }
    if (column < columns) dtable[id * columns + column] += sum;
  }
}

template <typename T>
Status EmbeddingGradientOf(const KernelStream& on, const void* dy, const std::int32_t* ids,
                           std::int64_t count, Matrix size, float* dtable) {
  const std::int64_t parts = (size.columns + kWarp - 1) / kWarp;
  return Launch(EmbeddingGradientKernel<T>, {BlocksOf(on, count * parts, kWarps), kThreads},
                on.stream, "embedding_gradient", static_cast<const T*>(dy), ids, count, size.rows,
                size.columns, parts, dtable);
}

__global__ void __launch_bounds__(kThreads) ClearKernel(float* values, std::int64_t elements) {
  for (std::int64_t i = Thread(); i < elements; i += Threads()) values[i] = 0;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AddPositionsKernel(const T* x, const float* table, std::int64_t elements, std::int64_t sequence,
                       T* y) {
  for (std::int64_t i = Thread(); i < elements; i += Threads()) {
    y[i] = FromFloat<T>(ToFloat(x[i]) + table[i % sequence]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PositionsGradientKernel(const T* dy, std::int64_t elements, std::int64_t sequence,
                            std::int64_t table, float* dtable, bool add) {
  for (std::int64_t i = Thread(); i < table; i += Threads()) {
    float sum = 0;
    if (i < sequence) {
      for (std::int64_t j = i; j < elements; j += sequence) sum += ToFloat(dy[j]);
    }
    dtable[i] = add ? dtable[i] + sum : sum;
  }
}

}  // namespace

Status EnqueueEmbedding(const KernelStream& on, DType dtype, const std::int32_t* ids,
                        std::int64_t count, const float* table, Matrix size, void* y) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &EmbeddingOf<decltype(t)>; });
  return enqueue(on, ids, count, table, size, y);
}

Status EnqueueEmbeddingGradient(const KernelStream& on, DType dtype, const void* dy,
                                const std::int32_t* ids, std::int64_t count, Matrix size,
                                float* dtable, bool add) {
  const std::int64_t elements = size.rows * size.columns;
  if (!add) {
    GACCD_RETURN_IF_ERROR(Launch(ClearKernel, {BlocksOf(on, elements, kThreads), kThreads},
                                 on.stream, "embedding_gradient", dtable, elements));
  }
  const auto enqueue = WithFloat(dtype, [](auto t) { return &EmbeddingGradientOf<decltype(t)>; });
  return enqueue(on, dy, ids, count, size, dtable);
}

Status EnqueueAddPositions(const KernelStream& on, DType dtype, const void* x, const float* table,
                           std::int64_t elements, std::int64_t sequence, void* y) {
  const LaunchShape shape{BlocksOf(on, elements, kThreads), kThreads};
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(AddPositionsKernel<T>, shape, on.stream, "add_positions",
                  static_cast<const T*>(x), table, elements, sequence, static_cast<T*>(y));
  });
}

Status EnqueuePositionsGradient(const KernelStream& on, DType dtype, const void* dy,
                                std::int64_t elements, std::int64_t sequence, std::int64_t table,
                                float* dtable, bool add) {
  const LaunchShape shape{BlocksOf(on, table, kThreads), kThreads};
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(PositionsGradientKernel<T>, shape, on.stream, "positions_gradient",
                  static_cast<const T*>(dy), elements, sequence, table, dtable, add);
  });
}

}  // namespace gaccd
