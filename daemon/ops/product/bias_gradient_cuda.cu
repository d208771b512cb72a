// Sums of columns. A block processes 32 columns and a part of the rows, one column per lane; a
// second kernel adds the parts in order.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/product/linear.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Minimum rows per part and maximum number of parts, which limits both the length of chains of
// additions (rounding errors) and the number of partial sums.
constexpr std::int64_t kBiasRowsPerPart = 128;
constexpr std::int64_t kMaxBiasParts = 64;

std::int64_t BiasParts(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kBiasRowsPerPart, 1, kMaxBiasParts);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ColumnSumsKernel(const T* dy, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     std::int64_t parts, float* sums, bool add) {
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
      sum += ToFloat(dy[m * stride + column]);
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
    AddBiasPartsKernel(const float* partial, std::int64_t parts, std::int64_t columns, float* db,
                       bool add) {
  const std::int64_t column = GridIndex();
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
                static_cast<const T*>(dy), size.rows, size.columns, size.row_stride(), parts, sums,
                add);
}

}  // namespace

std::size_t BiasGradientScratchBytes(Matrix size) {
  const std::int64_t parts = BiasParts(size.rows);
  return parts == 1 ? 0 : static_cast<std::size_t>(parts * size.columns) * sizeof(float);
}

Status EnqueueBiasGradient(const KernelStream& on, DType dtype, const void* dy, Matrix size,
                           float* db, bool add, void* scratch) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &EnqueueParts<decltype(t)>; });
  const std::int64_t parts = BiasParts(size.rows);
  if (parts == 1) return enqueue(on, dy, size, 1, db, add);
  auto* partial = static_cast<float*>(scratch);
  GACCD_RETURN_IF_ERROR(enqueue(on, dy, size, parts, partial, false));
  return Launch(AddBiasPartsKernel, {BlocksFor(size.columns, kThreads), kThreads}, on.stream,
                "bias_gradient", partial, parts, size.columns, db, add);
}

KernelResult MakeBiasGradientCuda(const CudaRequest& request) {
  const ValueSpec& dy = request.inputs[0];
  const std::int64_t columns = dy.shape.back();
  const std::int64_t rows = columns > 0 ? request.elements() / columns : 0;
  const Matrix size{rows, columns, dy.row_stride};
  return MakeCall(
      request,
      [on = request.on, dtype = request.dtype(), size](const Call& c) {
        return EnqueueBiasGradient(on, dtype, c.inputs[0], size, c.out<float>(0), c.add[0],
                                   c.scratch);
      },
      BiasGradientScratchBytes(size));
}

}  // namespace gaccd
