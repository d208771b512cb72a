// One row a sequence: a thread for every value that is written.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/sequence_kernels_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksPerMultiprocessor = 8;

__device__ inline std::int64_t Known(const std::int32_t* lengths, std::int64_t b,
                                     std::int64_t length) {
  if (lengths == nullptr) return length;
  const std::int64_t known = lengths[b];
  return known < 0 ? 0 : known < length ? known : length;
}

// y [count, columns]; kMean: else the first row.
template <typename T, bool kMean>
__global__ void __launch_bounds__(kThreads)
    PoolKernel(const T* x, const std::int32_t* lengths, SequenceSize size, T* y) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < size.count * size.columns; i += threads) {
    const std::int64_t b = i / size.columns;
    const T* from = x + b * size.length * size.columns + i % size.columns;
    if (!kMean) {
      y[i] = *from;
      continue;
    }
    const std::int64_t known = Known(lengths, b, size.length);
    float sum = 0;
#pragma unroll 4
    for (std::int64_t t = 0; t < known; ++t) sum += ToFloat(from[t * size.columns]);
    y[i] = FromFloat<T>(known > 0 ? sum / static_cast<float>(known) : 0.0F);
  }
}

// dx [count * length, columns].
template <typename T, bool kMean>
__global__ void __launch_bounds__(kThreads)
    PoolGradientKernel(const T* dy, const std::int32_t* lengths, SequenceSize size, T* dx) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t elements = size.count * size.length * size.columns;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < elements; i += threads) {
    const std::int64_t row = i / size.columns;
    const std::int64_t b = row / size.length;
    const std::int64_t known = kMean ? Known(lengths, b, size.length) : 1;
    const float value = ToFloat(dy[b * size.columns + i % size.columns]);
    dx[i] = FromFloat<T>(row % size.length < known ? value / static_cast<float>(known) : 0.0F);
  }
}

template <bool kMean>
Status Pool(const KernelStream& on, const char* what, DType dtype, const void* x,
            const std::int32_t* lengths, SequenceSize size, void* y) {
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  const LaunchShape shape{std::min(most, BlocksFor(size.count * size.columns, kThreads)), kThreads};
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(PoolKernel<T, kMean>, shape, on.stream, what, static_cast<const T*>(x), lengths,
                  size, static_cast<T*>(y));
  });
}

template <bool kMean>
Status PoolGradient(const KernelStream& on, const char* what, DType dtype, const void* dy,
                    const std::int32_t* lengths, SequenceSize size, void* dx) {
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  const std::int64_t elements = size.count * size.length * size.columns;
  const LaunchShape shape{std::min(most, BlocksFor(elements, kThreads)), kThreads};
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(PoolGradientKernel<T, kMean>, shape, on.stream, what, static_cast<const T*>(dy),
                  lengths, size, static_cast<T*>(dx));
  });
}

}  // namespace

Status EnqueueFirstRows(const KernelStream& on, DType dtype, const void* x, SequenceSize size,
                        void* y) {
  return Pool<false>(on, "first_rows", dtype, x, nullptr, size, y);
}

Status EnqueueFirstRowsGradient(const KernelStream& on, DType dtype, const void* dy,
                                SequenceSize size, void* dx) {
  return PoolGradient<false>(on, "first_rows_gradient", dtype, dy, nullptr, size, dx);
}

Status EnqueueMeanRows(const KernelStream& on, DType dtype, const void* x,
                       const std::int32_t* lengths, SequenceSize size, void* y) {
  return Pool<true>(on, "mean_rows", dtype, x, lengths, size, y);
}

Status EnqueueMeanRowsGradient(const KernelStream& on, DType dtype, const void* dy,
                               const std::int32_t* lengths, SequenceSize size, void* dx) {
  return PoolGradient<true>(on, "mean_rows_gradient", dtype, dy, lengths, size, dx);
}

}  // namespace gaccd
