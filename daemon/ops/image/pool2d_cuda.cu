// One thread per written vector of channels. In gradients a thread iterates over the windows that
// contain its pixel, so that sums have a fixed order.
#include <cstring>

#include "daemon/ops/image/pool2d_parts_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using namespace pool2d;  // NOLINT: its parts
using Call = CallKernel::Call;

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    MaxPoolKernel(const T* x, PoolSize size, T* y, std::int32_t* pixels) {
  const Axis& rows = size.rows;
  const Axis& columns = size.columns;
  for (std::int32_t i = GridIndex<std::int32_t>(); i < size.vectors;
       i += GridStride<std::int32_t>()) {
    const Place at(i, rows.out, columns.out, size.of_pixel, kWidth);
    const T* image = x + at.n * size.image() + at.channel;
    const std::int32_t first_row = rows.Begin(at.row);
    const std::int32_t first_column = columns.Begin(at.column);
    const std::int32_t end_row = rows.End(at.row);
    const std::int32_t end_column = columns.End(at.column);
    float largest[kWidth];
    std::int32_t from[kWidth];
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      largest[v] = -INFINITY;
      from[v] = first_row * columns.in + first_column;
    }
    for (std::int32_t h = first_row; h < end_row; h += rows.dilation) {
      for (std::int32_t w = first_column; w < end_column; w += columns.dilation) {
        const std::int32_t pixel = h * columns.in + w;
        float values[kWidth];
        Load<Use::kAgain>(image + pixel * size.channels, values);
#pragma unroll
        for (int v = 0; v < kWidth; ++v) {
          const bool takes = values[v] > largest[v] || values[v] != values[v];
          largest[v] = takes ? values[v] : largest[v];
          from[v] = takes ? pixel : from[v];
        }
      }
    }
    const std::int64_t to = std::int64_t{i} * kWidth;
    Store<Use::kAgain>(y + to, largest);
    Raw<std::int32_t, kWidth> raw;
    std::memcpy(&raw, from, sizeof(raw));
    StoreRaw<Use::kStream>(pixels + to, raw);
  }
}

// Calls add(offset in y, window row, window column) for the windows that contain a pixel of x, in
// order.
template <typename Add>
__device__ inline void ForWindows(const PoolSize& size, const Place& at, const Add& add) {
  const std::int32_t last_row = size.rows.Last(at.row);
  const std::int32_t first_column = size.columns.First(at.column);
  const std::int32_t last_column = size.columns.Last(at.column);
  const std::int64_t image = at.n * size.pooled_image() + at.channel;
  for (std::int32_t p = size.rows.First(at.row); p <= last_row; ++p) {
#pragma unroll 1  // few iterations: saves registers, which allows more warps
    for (std::int32_t q = first_column; q <= last_column; ++q) {
      add(image + (p * size.columns.out + q) * size.channels, p, q);
    }
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    MaxPoolGradientKernel(const T* dy, const std::int32_t* pixels, PoolSize size, T* dx) {
  for (std::int32_t i = GridIndex<std::int32_t>(); i < size.vectors;
       i += GridStride<std::int32_t>()) {
    const Place at(i, size.rows.in, size.columns.in, size.of_pixel, kWidth);
    const std::int32_t pixel = at.row * size.columns.in + at.column;
    float sums[kWidth] = {};
    ForWindows(size, at, [&](std::int64_t y, std::int32_t, std::int32_t) {
      float values[kWidth];
      std::int32_t from[kWidth];
      Load<Use::kAgain>(dy + y, values);
      const Raw<std::int32_t, kWidth> raw = LoadRaw<kWidth, Use::kAgain>(pixels + y);
      std::memcpy(from, &raw, sizeof(raw));
#pragma unroll
      for (int v = 0; v < kWidth; ++v) sums[v] += from[v] == pixel ? values[v] : 0.0F;
    });
    Store<Use::kAgain>(dx + std::int64_t{i} * kWidth, sums);
  }
}

__device__ inline float WindowDivisor(const PoolSize& size, std::int32_t p, std::int32_t q) {
  return static_cast<float>(std::int64_t{size.rows.Count(p)} * size.columns.Count(q));
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads) AvgPoolKernel(const T* x, PoolSize size, T* y) {
  const Axis& rows = size.rows;
  const Axis& columns = size.columns;
  for (std::int32_t i = GridIndex<std::int32_t>(); i < size.vectors;
       i += GridStride<std::int32_t>()) {
    const Place at(i, rows.out, columns.out, size.of_pixel, kWidth);
    const T* image = x + at.n * size.image() + at.channel;
    const std::int32_t first_column = columns.Begin(at.column);
    const std::int32_t end_column = columns.End(at.column);
    const std::int32_t end_row = rows.End(at.row);
    float sums[kWidth] = {};
    for (std::int32_t h = rows.Begin(at.row); h < end_row; ++h) {
      for (std::int32_t w = first_column; w < end_column; ++w) {
        float values[kWidth];
        Load<Use::kAgain>(image + (h * columns.in + w) * size.channels, values);
#pragma unroll
        for (int v = 0; v < kWidth; ++v) sums[v] += values[v];
      }
    }
    const float count = WindowDivisor(size, at.row, at.column);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sums[v] /= count;
    Store<Use::kAgain>(y + std::int64_t{i} * kWidth, sums);
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    AvgPoolGradientKernel(const T* dy, PoolSize size, T* dx) {
  for (std::int32_t i = GridIndex<std::int32_t>(); i < size.vectors;
       i += GridStride<std::int32_t>()) {
    const Place at(i, size.rows.in, size.columns.in, size.of_pixel, kWidth);
    float sums[kWidth] = {};
    ForWindows(size, at, [&](std::int64_t y, std::int32_t p, std::int32_t q) {
      const float count = WindowDivisor(size, p, q);
      float values[kWidth];
      Load<Use::kAgain>(dy + y, values);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) sums[v] += values[v] / count;
    });
    Store<Use::kAgain>(dx + std::int64_t{i} * kWidth, sums);
  }
}

KernelResult MakeAverage(const CudaRequest& request, const PoolWindows& windows, const char* what) {
  return MakePooling(
      request, windows, what, false,
      [what, stream = request.on.stream](auto t, auto width, const Call& c, const PoolPart& part) {
        using T = decltype(t);
        return Launch(AvgPoolKernel<T, width>, part.shape, stream, what, c.in<T>(0) + part.x,
                      part.size, c.out<T>(0) + part.y);
      });
}

}  // namespace

KernelResult MakeMaxPool2dCuda(const CudaRequest& request) {
  constexpr const char* kWhat = "max_pool2d";
  const auto& function = static_cast<const MaxPool2d&>(request.function);
  return MakePooling(
      request, function.windows(request.inputs[0].shape), kWhat, false,
      [stream = request.on.stream](auto t, auto width, const Call& c, const PoolPart& part) {
        using T = decltype(t);
        return Launch(MaxPoolKernel<T, width>, part.shape, stream, kWhat, c.in<T>(0) + part.x,
                      part.size, c.out<T>(0) + part.y, c.out<std::int32_t>(1) + part.y);
      });
}

KernelResult MakeMaxPool2dGradientCuda(const CudaRequest& request) {
  constexpr const char* kWhat = "max_pool2d_gradient";
  const auto& function = static_cast<const MaxPool2dGradient&>(request.function);
  return MakePooling(
      request, function.windows(), kWhat, true,
      [stream = request.on.stream](auto t, auto width, const Call& c, const PoolPart& part) {
        using T = decltype(t);
        return Launch(MaxPoolGradientKernel<T, width>, part.shape, stream, kWhat,
                      c.in<T>(0) + part.y, c.in<std::int32_t>(1) + part.y, part.size,
                      c.out<T>(0) + part.x);
      });
}

KernelResult MakeAvgPool2dCuda(const CudaRequest& request) {
  const auto& function = static_cast<const AvgPool2d&>(request.function);
  return MakeAverage(request, function.windows(request.inputs[0].shape), "avg_pool2d");
}

KernelResult MakeAdaptiveAvgPool2dCuda(const CudaRequest& request) {
  const auto& function = static_cast<const AdaptiveAvgPool2d&>(request.function);
  return MakeAverage(request, function.windows(request.inputs[0].shape), "adaptive_avg_pool2d");
}

KernelResult MakeAvgPool2dGradientCuda(const CudaRequest& request) {
  constexpr const char* kWhat = "avg_pool2d_gradient";
  const auto& function = static_cast<const AvgPool2dGradient&>(request.function);
  return MakePooling(
      request, function.windows(), kWhat, true,
      [stream = request.on.stream](auto t, auto width, const Call& c, const PoolPart& part) {
        using T = decltype(t);
        return Launch(AvgPoolGradientKernel<T, width>, part.shape, stream, kWhat,
                      c.in<T>(0) + part.y, part.size, c.out<T>(0) + part.x);
      });
}

}  // namespace gaccd
