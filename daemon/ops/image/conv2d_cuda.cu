// A thread, or for weight gradients of groups a warp, for every value that is written.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/image/conv2d_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

// ConvSize for kernels.
struct ConvPlace {
  std::int64_t in, out, in_of_group, out_of_group;
  std::int64_t height, width, rows, columns, kernel_height, kernel_width;
  std::int64_t stride[2], padding[2], dilation[2];

  explicit ConvPlace(const ConvSize& z)
      : in(z.in),
        out(z.out),
        in_of_group(z.in / z.groups),
        out_of_group(z.out / z.groups),
        height(z.image[0]),
        width(z.image[1]),
        rows(z.result[0]),
        columns(z.result[1]),
        kernel_height(z.kernel[0]),
        kernel_width(z.kernel[1]),
        stride{z.stride[0], z.stride[1]},
        padding{z.padding[0], z.padding[1]},
        dilation{z.dilation[0], z.dilation[1]} {}

  // Of the value of channel 0 that result m and element (i, j) of the kernel read; -1: padding.
  __device__ std::int64_t Read(std::int64_t m, std::int64_t i, std::int64_t j) const {
    const std::int64_t n = m / columns / rows;
    const std::int64_t h = m / columns % rows * stride[0] - padding[0] + i * dilation[0];
    const std::int64_t w = m % columns * stride[1] - padding[1] + j * dilation[1];
    if (h < 0 || h >= height || w < 0 || w >= width) return -1;
    return ((n * height + h) * width + w) * in;
  }
  // The result that reads pixel (h, w) of image n with element (i, j) of the kernel; -1: none does.
  __device__ std::int64_t Result(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t i,
                                 std::int64_t j) const {
    const std::int64_t p = h + padding[0] - i * dilation[0];
    const std::int64_t q = w + padding[1] - j * dilation[1];
    if (p < 0 || q < 0 || p % stride[0] != 0 || q % stride[1] != 0) return -1;
    if (p / stride[0] >= rows || q / stride[1] >= columns) return -1;
    return (n * rows + p / stride[0]) * columns + q / stride[1];
  }
  // The sum of value(result, element of the kernel) over the results that read value `at` of x.
  template <typename Value>
  __device__ float SumOfResults(std::int64_t at, const Value& value) const {
    const std::int64_t pixel = at / in;
    float sum = 0;
    for (std::int64_t i = 0; i < kernel_height; ++i) {
      for (std::int64_t j = 0; j < kernel_width; ++j) {
        const std::int64_t m =
            Result(pixel / width / height, pixel / width % height, pixel % width, i, j);
        if (m >= 0) sum += value(m, i * kernel_width + j);
      }
    }
    return sum;
  }
};

__device__ inline std::int64_t FirstElement() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t ElementStep() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ColumnsKernel(const T* x, ConvPlace z, std::int64_t elements, T* columns) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  for (std::int64_t e = FirstElement(); e < elements; e += ElementStep()) {
    const std::int64_t k = e % (z.in * area);
    const std::int64_t from =
        z.Read(e / (z.in * area), k / z.kernel_width % z.kernel_height, k % z.kernel_width);
    columns[e] = from < 0 ? FromFloat<T>(0.0F) : x[from + k / area];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SumOfColumnsKernel(const float* columns, ConvPlace z, std::int64_t elements, T* dx) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  for (std::int64_t e = FirstElement(); e < elements; e += ElementStep()) {
    dx[e] = FromFloat<T>(z.SumOfResults(e, [=](std::int64_t m, std::int64_t k) {
      return columns[(m * z.in + e % z.in) * area + k];
    }));
  }
}

// [O, C, area] to [O, area, C].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ChannelsLastKernel(const T* from, std::int64_t elements, std::int64_t channels,
                       std::int64_t area, T* to) {
  for (std::int64_t e = FirstElement(); e < elements; e += ElementStep()) {
    const std::int64_t out = e / (channels * area) * (channels * area);
    to[e] = from[out + e % channels * area + e / channels % area];
  }
}

__global__ void __launch_bounds__(kThreads)
    FromChannelsLastKernel(const float* from, std::int64_t of_from, std::int64_t elements,
                           std::int64_t channels, std::int64_t area, float* to, bool add) {
  for (std::int64_t e = FirstElement(); e < elements; e += ElementStep()) {
    const std::int64_t row = e / (channels * area) * area + e % area;
    const float value = from[row * of_from + e / area % channels];
    to[e] = add ? to[e] + value : value;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PadChannelsKernel(const T* from, std::int64_t elements, std::int64_t channels,
                      std::int64_t padded, T* to) {
  for (std::int64_t e = FirstElement(); e < elements; e += ElementStep()) {
    const std::int64_t channel = e % padded;
    to[e] = channel < channels ? from[e / padded * channels + channel] : FromFloat<T>(0.0F);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) Conv2dKernel(const T* x, const T* weight, const T* bias,
                                                         ConvPlace z, std::int64_t elements, T* y) {
  for (std::int64_t e = FirstElement(); e < elements; e += ElementStep()) {
    const std::int64_t o = e % z.out;
    const std::int64_t first = o / z.out_of_group * z.in_of_group;
    const std::int64_t area = z.kernel_height * z.kernel_width;
    const T* of_output = weight + o * z.in_of_group * area;
    float sum = bias != nullptr ? ToFloat(bias[o]) : 0.0F;
    for (std::int64_t k = 0; k < area; ++k) {
      const std::int64_t from = z.Read(e / z.out, k / z.kernel_width, k % z.kernel_width);
      if (from < 0) continue;
      for (std::int64_t c = 0; c < z.in_of_group; ++c) {
        sum += ToFloat(x[from + first + c]) * ToFloat(of_output[c * area + k]);
      }
    }
    y[e] = FromFloat<T>(sum);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Conv2dInputGradientKernel(const T* dy, const T* weight, ConvPlace z, std::int64_t elements,
                              T* dx) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  for (std::int64_t e = FirstElement(); e < elements; e += ElementStep()) {
    const std::int64_t group = e % z.in / z.in_of_group;
    const std::int64_t channel = e % z.in % z.in_of_group;
    const std::int64_t first = group * z.out_of_group;
    dx[e] = FromFloat<T>(z.SumOfResults(e, [=](std::int64_t m, std::int64_t k) {
      float sum = 0;
      for (std::int64_t o = first; o < first + z.out_of_group; ++o) {
        sum +=
            ToFloat(dy[m * z.out + o]) * ToFloat(weight[(o * z.in_of_group + channel) * area + k]);
      }
      return sum;
    }));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Conv2dWeightGradientKernel(const T* dy, const T* x, ConvPlace z, std::int64_t results,
                               std::int64_t elements, float* dweight, bool add) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  const std::int64_t warp = FirstElement() / kWarp;
  for (std::int64_t e = warp; e < elements; e += ElementStep() / kWarp) {
    const std::int64_t o = e / (z.in_of_group * area);
    const std::int64_t channel = o / z.out_of_group * z.in_of_group + e / area % z.in_of_group;
    const std::int64_t k = e % area;
    float sum = 0;
    for (std::int64_t m = threadIdx.x % kWarp; m < results; m += kWarp) {
      const std::int64_t from = z.Read(m, k / z.kernel_width, k % z.kernel_width);
      if (from >= 0) sum += ToFloat(dy[m * z.out + o]) * ToFloat(x[from + channel]);
    }
    sum = WarpSum(sum);
    if (threadIdx.x % kWarp == 0) dweight[e] = add ? dweight[e] + sum : sum;
  }
}

// partials [chunks, area, C]: a thread sums the products of a channel and an element of the kernel
// over a chunk of the results, the lanes of a warp those of channels that lie together.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    DepthwisePartialsKernel(const T* dy, const T* x, ConvPlace z, std::int64_t results,
                            std::int64_t chunks, float* partials) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  const std::int64_t e = FirstElement();
  if (e >= chunks * area * z.in) return;
  const std::int64_t channel = e % z.in;
  const std::int64_t k = e / z.in % area;
  const std::int64_t chunk = e / z.in / area;
  const std::int64_t end = results * (chunk + 1) / chunks;
  float sum = 0;
  for (std::int64_t m = results * chunk / chunks; m < end; ++m) {
    const std::int64_t from = z.Read(m, k / z.kernel_width, k % z.kernel_width);
    if (from >= 0) sum += ToFloat(dy[m * z.out + channel]) * ToFloat(x[from + channel]);
  }
  partials[e] = sum;
}

// dweight [C, area], the chunks in their order.
__global__ void __launch_bounds__(kThreads)
    DepthwiseSumKernel(const float* partials, std::int64_t chunks, std::int64_t channels,
                       std::int64_t area, float* dweight, bool add) {
  for (std::int64_t e = FirstElement(); e < channels * area; e += ElementStep()) {
    double sum = add ? static_cast<double>(dweight[e]) : 0.0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      sum += static_cast<double>(partials[(chunk * area + e % area) * channels + e / area]);
    }
    dweight[e] = static_cast<float>(sum);
  }
}

// Threads enough for the GPU, each with results enough to sum.
std::int64_t DepthwiseChunks(const KernelStream& on, const ConvSize& size) {
  constexpr std::int64_t kLeast = 64;  // results of a thread
  const std::int64_t wanted =
      std::int64_t{on.multiprocessors} * 8 * kThreads / (size.in * size.area()) + 1;
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, size.results() / kLeast));
}

}  // namespace

std::int64_t DepthwiseScratchBytes(const KernelStream& on, const ConvSize& size) {
  return DepthwiseChunks(on, size) * size.area() * size.in *
         static_cast<std::int64_t>(sizeof(float));
}

Status EnqueueDepthwiseWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                      const void* dy, const void* x, float* scratch, float* dweight,
                                      bool add) {
  constexpr const char* kName = "conv2d_weight_gradient";
  const std::int64_t chunks = DepthwiseChunks(on, size);
  const std::int64_t partials = chunks * size.area() * size.in;
  GACCD_RETURN_IF_ERROR(WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(DepthwisePartialsKernel<T>, {BlocksFor(partials, kThreads), kThreads}, on.stream,
                  kName, static_cast<const T*>(dy), static_cast<const T*>(x), ConvPlace(size),
                  size.results(), chunks, scratch);
  }));
  return Launch(DepthwiseSumKernel, {on.Blocks(size.in * size.area(), kThreads), kThreads},
                on.stream, kName, static_cast<const float*>(scratch), chunks, size.in, size.area(),
                dweight, add);
}

Status EnqueueChannelsLastWeight(const KernelStream& on, DType dtype, const ConvSize& size,
                                 const void* weight, void* to) {
  const std::int64_t elements = size.out * size.columns();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(ChannelsLastKernel<T>, {on.Blocks(elements, kThreads), kThreads}, on.stream,
                  "conv2d", static_cast<const T*>(weight), elements, size.in_of_group(),
                  size.area(), static_cast<T*>(to));
  });
}

Status EnqueueFromChannelsLast(const KernelStream& on, const ConvSize& size, const float* gradient,
                               std::int64_t channels, float* dweight, bool add) {
  const std::int64_t elements = size.out * size.columns();
  return Launch(FromChannelsLastKernel, {on.Blocks(elements, kThreads), kThreads}, on.stream,
                "conv2d_weight_gradient", gradient, channels, elements, size.in_of_group(),
                size.area(), dweight, add);
}

Status EnqueuePadChannels(const KernelStream& on, DType dtype, const void* from, std::int64_t rows,
                          std::int64_t channels, std::int64_t padded, void* to) {
  const std::int64_t elements = rows * padded;
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(PadChannelsKernel<T>, {on.Blocks(elements, kThreads), kThreads}, on.stream,
                  "conv2d_weight_gradient", static_cast<const T*>(from), elements, channels, padded,
                  static_cast<T*>(to));
  });
}

Status EnqueueColumns(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                      void* columns) {
  const std::int64_t elements = size.results() * size.columns();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(ColumnsKernel<T>, {on.Blocks(elements, kThreads), kThreads}, on.stream, "conv2d",
                  static_cast<const T*>(x), ConvPlace(size), elements, static_cast<T*>(columns));
  });
}

Status EnqueueSumOfColumns(const KernelStream& on, DType dtype, const ConvSize& size,
                           const float* columns, void* dx) {
  const std::int64_t elements = size.image_elements();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(SumOfColumnsKernel<T>, {on.Blocks(elements, kThreads), kThreads}, on.stream,
                  "conv2d_input_gradient", columns, ConvPlace(size), elements, static_cast<T*>(dx));
  });
}

Status EnqueueConv2d(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                     const void* weight, const void* bias, void* y) {
  const std::int64_t elements = size.results() * size.out;
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(Conv2dKernel<T>, {on.Blocks(elements, kThreads), kThreads}, on.stream, "conv2d",
                  static_cast<const T*>(x), static_cast<const T*>(weight),
                  static_cast<const T*>(bias), ConvPlace(size), elements, static_cast<T*>(y));
  });
}

Status EnqueueConv2dInputGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                  const void* dy, const void* weight, void* dx) {
  const std::int64_t elements = size.image_elements();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(Conv2dInputGradientKernel<T>, {on.Blocks(elements, kThreads), kThreads},
                  on.stream, "conv2d_input_gradient", static_cast<const T*>(dy),
                  static_cast<const T*>(weight), ConvPlace(size), elements, static_cast<T*>(dx));
  });
}

Status EnqueueConv2dWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                   const void* dy, const void* x, float* dweight, bool add) {
  const std::int64_t elements = size.out * size.columns();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(Conv2dWeightGradientKernel<T>, {on.Blocks(elements, kWarps), kThreads}, on.stream,
                  "conv2d_weight_gradient", static_cast<const T*>(dy), static_cast<const T*>(x),
                  ConvPlace(size), size.results(), elements, dweight, add);
  });
}

}  // namespace gaccd
