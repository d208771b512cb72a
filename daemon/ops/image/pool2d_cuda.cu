// A thread for every value that is written: also in the gradients, where it looks for the windows
// that its value is in, so that sums have one order.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct PoolSize {
  PoolWindows windows;
  std::int64_t channels = 0;
  std::int64_t elements = 0;  // that are written

  [[nodiscard]] __device__ std::int64_t image() const {
    return windows.rows.in * windows.columns.in * channels;
  }
  [[nodiscard]] __device__ std::int64_t pooled_image() const {
    return windows.rows.out * windows.columns.out * channels;
  }
};

// A value of images of [rows, columns, channels].
struct Place {
  std::int64_t n, row, column, channel;

  __device__ Place(std::int64_t i, std::int64_t rows, std::int64_t columns, std::int64_t channels)
      : n(i / channels / columns / rows),
        row(i / channels / columns % rows),
        column(i / channels % columns),
        channel(i % channels) {}
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    MaxPoolKernel(const T* x, PoolSize size, T* y, std::int32_t* pixels) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const auto& [rows, columns] = size.windows;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < size.elements; i += threads) {
    const Place at(i, rows.out, columns.out, size.channels);
    const T* image = x + at.n * size.image() + at.channel;
    float largest = -INFINITY;
    std::int64_t pixel = rows.Begin(at.row) * columns.in + columns.Begin(at.column);
    for (std::int64_t h = rows.Begin(at.row); h < rows.End(at.row); h += rows.dilation) {
      for (std::int64_t w = columns.Begin(at.column); w < columns.End(at.column);
           w += columns.dilation) {
        const float value = ToFloat(image[(h * columns.in + w) * size.channels]);
        if (!(value > largest) && value == value) continue;
        largest = value;
        pixel = h * columns.in + w;
      }
    }
    y[i] = FromFloat<T>(largest);
    pixels[i] = static_cast<std::int32_t>(pixel);
  }
}

// sum(place in y, window row, window column) of the windows with value i of x, in their order.
template <typename Value>
__device__ inline float SumOverWindows(const PoolSize& size, const Place& at, const Value& value) {
  const auto& [rows, columns] = size.windows;
  float sum = 0;
  for (std::int64_t p = rows.First(at.row); p <= rows.Last(at.row); ++p) {
    for (std::int64_t q = columns.First(at.column); q <= columns.Last(at.column); ++q) {
      const std::int64_t window = (p * columns.out + q) * size.channels;
      sum += value(at.n * size.pooled_image() + window + at.channel, p, q);
    }
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    MaxPoolGradientKernel(const T* dy, const std::int32_t* pixels, PoolSize size, T* dx) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const auto& [rows, columns] = size.windows;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < size.elements; i += threads) {
    const Place at(i, rows.in, columns.in, size.channels);
    const auto pixel = static_cast<std::int32_t>(at.row * columns.in + at.column);
    dx[i] = FromFloat<T>(SumOverWindows(size, at, [=](std::int64_t y, std::int64_t, std::int64_t) {
      return pixels[y] == pixel ? ToFloat(dy[y]) : 0.0F;
    }));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) AvgPoolKernel(const T* x, PoolSize size, T* y) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const auto& [rows, columns] = size.windows;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < size.elements; i += threads) {
    const Place at(i, rows.out, columns.out, size.channels);
    const T* image = x + at.n * size.image() + at.channel;
    float sum = 0;
    for (std::int64_t h = rows.Begin(at.row); h < rows.End(at.row); ++h) {
      for (std::int64_t w = columns.Begin(at.column); w < columns.End(at.column); ++w) {
        sum += ToFloat(image[(h * columns.in + w) * size.channels]);
      }
    }
    y[i] = FromFloat<T>(sum / static_cast<float>(rows.Count(at.row) * columns.Count(at.column)));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AvgPoolGradientKernel(const T* dy, PoolSize size, T* dx) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const auto& [rows, columns] = size.windows;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < size.elements; i += threads) {
    const Place at(i, rows.in, columns.in, size.channels);
    dx[i] =
        FromFloat<T>(SumOverWindows(size, at, [&](std::int64_t y, std::int64_t p, std::int64_t q) {
          return ToFloat(dy[y]) / static_cast<float>(rows.Count(p) * columns.Count(q));
        }));
  }
}

PoolSize SizeOf(const CudaRequest& request, const PoolWindows& windows) {
  const Shape& written = request.outputs[0].shape;
  return {windows, written[3], Elements(written)};
}

LaunchShape PoolGrid(const CudaRequest& request) {
  return {request.on.Blocks(Elements(request.outputs[0].shape), kThreads), kThreads};
}

KernelResult MakeAverage(const CudaRequest& request, const PoolWindows& windows, const char* what) {
  return MakeTypedCall(request, [what, stream = request.on.stream, size = SizeOf(request, windows),
                                 shape = PoolGrid(request)](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(AvgPoolKernel<T>, shape, stream, what, c.in<T>(0), size, c.out<T>(0));
  });
}

}  // namespace

KernelResult MakeMaxPool2dCuda(const CudaRequest& request) {
  const PoolWindows windows =
      static_cast<const MaxPool2d&>(request.function).windows(request.inputs[0].shape);
  return MakeTypedCall(request, [stream = request.on.stream, size = SizeOf(request, windows),
                                 shape = PoolGrid(request)](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(MaxPoolKernel<T>, shape, stream, "max_pool2d", c.in<T>(0), size, c.out<T>(0),
                  c.out<std::int32_t>(1));
  });
}

KernelResult MakeMaxPool2dGradientCuda(const CudaRequest& request) {
  const PoolWindows windows = static_cast<const MaxPool2dGradient&>(request.function).windows();
  return MakeTypedCall(request, [stream = request.on.stream, size = SizeOf(request, windows),
                                 shape = PoolGrid(request)](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(MaxPoolGradientKernel<T>, shape, stream, "max_pool2d_gradient", c.in<T>(0),
                  c.in<std::int32_t>(1), size, c.out<T>(0));
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
  const PoolWindows windows = static_cast<const AvgPool2dGradient&>(request.function).windows();
  return MakeTypedCall(request, [stream = request.on.stream, size = SizeOf(request, windows),
                                 shape = PoolGrid(request)](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(AvgPoolGradientKernel<T>, shape, stream, "avg_pool2d_gradient", c.in<T>(0), size,
                  c.out<T>(0));
  });
}

}  // namespace gaccd
