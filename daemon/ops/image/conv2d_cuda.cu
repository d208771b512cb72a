// One thread per written value; for weight gradients with groups, one warp.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/image/conv2d_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

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

  // Offset of the value of channel 0 that result m reads for element (i, j) of the kernel; -1:
  // padding.
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
  __device__ float SumResults(std::int64_t at, const Value& value) const {
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

// Calls launch() with a value of the index type: 32 bits if all indices fit, as their divisions are
// several times faster.
template <typename Launcher>
Status WithIndex(std::int64_t elements, const Launcher& launch) {
  if (elements < std::int64_t{1} << 31) return launch(std::uint32_t{});
  return launch(std::int64_t{});
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Im2colKernel(const T* x, ConvPlace z, std::int64_t elements, T* columns) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  for (std::int64_t e = GridIndex(); e < elements; e += GridStride()) {
    const std::int64_t k = e % (z.in * area);
    const std::int64_t from =
        z.Read(e / (z.in * area), k / z.kernel_width % z.kernel_height, k % z.kernel_width);
    columns[e] = from < 0 ? FromFloat<T>(0.0F) : x[from + k / area];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    Col2imKernel(const float* columns, ConvPlace z, std::int64_t elements, T* dx) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  for (std::int64_t e = GridIndex(); e < elements; e += GridStride()) {
    dx[e] = FromFloat<T>(z.SumResults(e, [=](std::int64_t m, std::int64_t k) {
      return columns[(m * z.in + e % z.in) * area + k];
    }));
  }
}

// [O, C, area] to [O, area, C].
template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    ChannelsLastKernel(const T* from, Index elements, Index channels, Index area, T* to) {
  for (Index e = GridIndex(); e < elements; e += GridStride()) {
    const Index pixel = e / channels;
    to[e] = from[(pixel / area * channels + e % channels) * area + pixel % area];
  }
}

template <typename Index>
__global__ void __launch_bounds__(kThreads)
    FromChannelsLastKernel(const float* from, std::int64_t of_from, Index elements, Index channels,
                           Index area, float* to, bool add) {
  for (Index e = GridIndex(); e < elements; e += GridStride()) {
    const Index of_output = e / area;
    const Index row = of_output / channels * area + e % area;
    const float value = from[row * of_from + of_output % channels];
    to[e] = add ? to[e] + value : value;
  }
}

// A thread writes 16 bytes of a padded row, which has `vectors` of them.
template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    PadChannelsKernel(const T* from, Index elements, std::int64_t channels, Index vectors, T* to) {
  constexpr int kWidth = kVectorWidth<T>;
  for (Index e = GridIndex(); e < elements; e += GridStride()) {
    const std::int64_t row = e / vectors;
    const std::int64_t first = (e - row * vectors) * kWidth;
    const T* of_row = from + row * channels;
    float values[kWidth];
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      values[c] = first + c < channels ? ToFloat(of_row[first + c]) : 0.0F;
    }
    Store<Use::kAgain>(to + std::int64_t{e} * kWidth, values);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) Conv2dKernel(const T* x, const T* weight, const T* bias,
                                                         ConvPlace z, std::int64_t elements, T* y) {
  for (std::int64_t e = GridIndex(); e < elements; e += GridStride()) {
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
  for (std::int64_t e = GridIndex(); e < elements; e += GridStride()) {
    const std::int64_t group = e % z.in / z.in_of_group;
    const std::int64_t channel = e % z.in % z.in_of_group;
    const std::int64_t first = group * z.out_of_group;
    dx[e] = FromFloat<T>(z.SumResults(e, [=](std::int64_t m, std::int64_t k) {
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
  const std::int64_t warp = GridIndex() / kWarp;
  for (std::int64_t e = warp; e < elements; e += GridStride() / kWarp) {
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

}  // namespace

Status EnqueueChannelsLastWeight(const KernelStream& on, DType dtype, const ConvSize& size,
                                 const void* weight, void* to) {
  const std::int64_t elements = size.out * size.columns();
  return WithIndex(elements, [&](auto index) {
    return WithFloat(dtype, [&](auto t) {
      using T = decltype(t);
      return LaunchForEach(ChannelsLastKernel<T, decltype(index)>, on, elements, "conv2d",
                           static_cast<const T*>(weight), elements, size.in_of_group(), size.area(),
                           static_cast<T*>(to));
    });
  });
}

Status EnqueueFromChannelsLast(const KernelStream& on, const ConvSize& size, const float* gradient,
                               std::int64_t channels, float* dweight, bool add) {
  const std::int64_t elements = size.out * size.columns();
  return WithIndex(elements, [&](auto index) {
    return LaunchForEach(FromChannelsLastKernel<decltype(index)>, on, elements,
                         "conv2d_weight_gradient", gradient, channels, elements, size.in_of_group(),
                         size.area(), dweight, add);
  });
}

Status EnqueuePadChannels(const KernelStream& on, DType dtype, const void* from, std::int64_t rows,
                          std::int64_t channels, std::int64_t padded, void* to) {
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    const std::int64_t vectors = padded / kVectorWidth<T>;
    return WithIndex(rows * vectors, [&](auto index) {
      return LaunchForEach(PadChannelsKernel<T, decltype(index)>, on, rows * vectors,
                           "conv2d_weight_gradient", static_cast<const T*>(from), rows * vectors,
                           channels, vectors, static_cast<T*>(to));
    });
  });
}

Status EnqueueIm2col(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                     void* columns) {
  const std::int64_t elements = size.results() * size.columns();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return LaunchForEach(Im2colKernel<T>, on, elements, "conv2d", static_cast<const T*>(x),
                         ConvPlace(size), elements, static_cast<T*>(columns));
  });
}

Status EnqueueCol2im(const KernelStream& on, DType dtype, const ConvSize& size,
                     const float* columns, void* dx) {
  const std::int64_t elements = size.image_elements();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return LaunchForEach(Col2imKernel<T>, on, elements, "conv2d_input_gradient", columns,
                         ConvPlace(size), elements, static_cast<T*>(dx));
  });
}

Status EnqueueConv2d(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                     const void* weight, const void* bias, void* y) {
  const std::int64_t elements = size.results() * size.out;
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return LaunchForEach(Conv2dKernel<T>, on, elements, "conv2d", static_cast<const T*>(x),
                         static_cast<const T*>(weight), static_cast<const T*>(bias),
                         ConvPlace(size), elements, static_cast<T*>(y));
  });
}

Status EnqueueConv2dInputGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                  const void* dy, const void* weight, void* dx) {
  const std::int64_t elements = size.image_elements();
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return LaunchForEach(Conv2dInputGradientKernel<T>, on, elements, "conv2d_input_gradient",
                         static_cast<const T*>(dy), static_cast<const T*>(weight), ConvPlace(size),
                         elements, static_cast<T*>(dx));
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
