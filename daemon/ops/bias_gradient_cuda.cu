// Sums of columns. A block takes 32 columns and a part of the rows, a lane one column; the parts
// are added by a second kernel, in their order.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
// A part has at least so many rows, and there are at most so many parts: chains of additions stay
// short (rounding grows with their length), and so do the partial sums.
constexpr std::int64_t kRowsPerPart = 128;
constexpr std::int64_t kMaxParts = 64;

std::int64_t PartsOf(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsPerPart, 1, kMaxParts);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ColumnSumsKernel(const T* dy, std::int64_t rows, std::int64_t columns, std::int64_t parts,
                     float* sums, bool add) {
  __shared__ float of_warps[kWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t part = blockIdx.x % parts;
  const std::int64_t column = blockIdx.x / parts * kWarp + lane;
  const std::int64_t end = rows * (part + 1) / parts;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t m = rows * part / parts + warp; m < end; m += kWarps) {
      sum += ToFloat(dy[m * columns + column]);
    }
  }
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (unsigned w = 1; w < kWarps; ++w) sum += of_warps[w][lane];
  float* to = sums + part * columns + column;
  *to = add ? *to + sum : sum;
}

__global__ void __launch_bounds__(kThreads)
    AddPartsKernel(const float* partial, std::int64_t parts, std::int64_t columns, float* db,
                   bool add) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += partial[part * columns + column];
  db[column] = add ? db[column] + sum : sum;
}

template <typename T>
Status EnqueueParts(const KernelStream& on, const void* dy, Matrix size, std::int64_t parts,
                    float* sums, bool add) {
  const unsigned blocks = BlocksFor(size.columns, kWarp) * static_cast<unsigned>(parts);
  return Launch(ColumnSumsKernel<T>, {blocks, kThreads}, on.stream, "bias_gradient",
                static_cast<const T*>(dy), size.rows, size.columns, parts, sums, add);
}

}  // namespace

std::size_t BiasGradientScratchBytes(Matrix size) {
  const std::int64_t parts = PartsOf(size.rows);
  return parts == 1 ? 0 : static_cast<std::size_t>(parts * size.columns) * sizeof(float);
}

Status EnqueueBiasGradient(const KernelStream& on, DType dtype, const void* dy, Matrix size,
                           float* db, bool add, void* scratch) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &EnqueueParts<decltype(t)>; });
  const std::int64_t parts = PartsOf(size.rows);
  if (parts == 1) return enqueue(on, dy, size, 1, db, add);
  auto* partial = static_cast<float*>(scratch);
  GACCD_RETURN_IF_ERROR(enqueue(on, dy, size, parts, partial, false));
  return Launch(AddPartsKernel, {BlocksFor(size.columns, kThreads), kThreads}, on.stream,
                "bias_gradient", partial, parts, size.columns, db, add);
}

}  // namespace gaccd
