// Kernels of depthwise_cuda.cu: partial sums of the weight gradient.
#pragma once

#include <algorithm>
#include <cstring>

#include "daemon/device/cuda/dnn_library.h"
#include "daemon/device/cuda/launch.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd::depthwise {

// ConvSize in the index type of a kernel.
template <typename Index>
struct DepthwiseSize {
  Index channels, height, width, rows, columns, kernel_height, kernel_width;
  Index stride[2], padding[2], dilation[2];

  explicit DepthwiseSize(const ConvSize& z)
      : channels(Index(z.in)),
        height(Index(z.image[0])),
        width(Index(z.image[1])),
        rows(Index(z.result[0])),
        columns(Index(z.result[1])),
        kernel_height(Index(z.kernel[0])),
        kernel_width(Index(z.kernel[1])),
        stride{Index(z.stride[0]), Index(z.stride[1])},
        padding{Index(z.padding[0]), Index(z.padding[1])},
        dilation{Index(z.dilation[0]), Index(z.dilation[1])} {}
};

// For all sizes. partials [chunks, area, C]: a thread sums the products of one channel and one
// kernel element over a chunk of the results; the lanes of a warp have adjacent channels.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    DepthwisePartialsKernel(const T* dy, const T* x, DepthwiseSize<std::int64_t> z,
                            std::int64_t results, std::int64_t chunks, float* partials) {
  const std::int64_t area = z.kernel_height * z.kernel_width;
  const std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (e >= chunks * area * z.channels) return;
  const std::int64_t channel = e % z.channels;
  const std::int64_t k = e / z.channels % area;
  const std::int64_t chunk = e / z.channels / area;
  const std::int64_t down = k / z.kernel_width * z.dilation[0] - z.padding[0];
  const std::int64_t right = k % z.kernel_width * z.dilation[1] - z.padding[1];
  const std::int64_t end = results * (chunk + 1) / chunks;
  std::int64_t m = results * chunk / chunks;
  std::int64_t q = m % z.columns;
  std::int64_t p = m / z.columns % z.rows;
  std::int64_t n = m / z.columns / z.rows;
  float sum = 0;
  for (; m < end; ++m) {
    const std::int64_t h = p * z.stride[0] + down;
    const std::int64_t w = q * z.stride[1] + right;
    if (h >= 0 && h < z.height && w >= 0 && w < z.width) {
      sum += ToFloat(dy[m * z.channels + channel]) *
             ToFloat(x[((n * z.height + h) * z.width + w) * z.channels + channel]);
    }
    if (++q < z.columns) continue;
    q = 0;
    if (++p < z.rows) continue;
    p = 0;
    ++n;
  }
  partials[e] = sum;
}

// Number of results that a thread of DepthwiseStripsKernel loads at once: a multiple of the
// kernel's columns, after which its register window repeats.
constexpr int ResultsPerLoad(int kernel_columns) {
  return kernel_columns == 3 ? 6 : kernel_columns;
}
// Number of results per strip, within a row. Longer strips would evict rows of x from the cache
// before the next row of results reads them again.
constexpr int StripLength(int kernel_columns) {
  return 28 / ResultsPerLoad(kernel_columns) * ResultsPerLoad(kernel_columns);
}

// Tiles of the channels with `lanes` threads each. Strips are counted down an image, then to the
// right, then image by image.
struct StripGrid {
  unsigned lanes, tiles, chunks;
  std::int64_t strips_of_row, strips;
};

// Channels per thread, in 8 bytes.
template <typename T>
inline constexpr int kTogether = 8 / static_cast<int>(sizeof(T));

template <typename T>
__device__ inline uint2 LoadTogether(const T* from, bool inside) {
  uint2 word{0, 0};
  if (inside) {
    CheckVector<sizeof(word)>(from);
#if defined(__CUDA_ARCH__)
    word = *reinterpret_cast<const uint2*>(from);
#else
    std::memcpy(&word, from, sizeof(word));
#endif
  }
  return word;
}
template <typename T>
__device__ inline void UnpackTogether(uint2 word, float (&values)[kTogether<T>]) {
  float of_vector[kVectorWidth<T>];
  UnpackWord(uint4{word.x, word.y, 0, 0}, of_vector, T{});
#pragma unroll
  for (int c = 0; c < kTogether<T>; ++c) values[c] = of_vector[c];
}

// Adds the products of the results [q, end) of a row and a row of x. The columns of x that a result
// reads are in registers: for the first q, column w is in window[(w + padding - q kStride) %
// kColumns].
template <typename T, int kColumns, int kStride>
__device__ inline void AddStrip(const T* dy, const T* x, int q, int end,
                                const DepthwiseSize<int>& z,
                                float (&sums)[kColumns][kTogether<T>]) {
  constexpr int kSteps = ResultsPerLoad(kColumns);
  constexpr int kKept = kColumns - kStride;  // columns that the next result uses again
  int w = q * kStride - z.padding[1];
  const auto readable =
      static_cast<unsigned>(std::clamp((end - 1) * kStride - z.padding[1] + kColumns, 0, z.width));
  const auto load = [&](int column) {  // negative columns are large as unsigned
    return LoadTogether(x + column * z.channels, static_cast<unsigned>(column) < readable);
  };
  float window[kColumns][kTogether<T>];
#pragma unroll
  for (int j = 0; j < kKept; ++j) UnpackTogether<T>(load(w + j), window[j]);
  for (; q < end; q += kSteps, w += kSteps * kStride) {
    uint2 next[kSteps * kStride];
    uint2 gradients[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps * kStride; ++k) next[k] = load(w + kKept + k);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      gradients[k] = LoadTogether(dy + (q + k) * z.channels, q + k < end);
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int s = k * kStride; s < (k + 1) * kStride; ++s) {
        UnpackTogether<T>(next[s], window[(kKept + s) % kColumns]);
      }
      float gradient[kTogether<T>];
      UnpackTogether<T>(gradients[k], gradient);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int c = 0; c < kTogether<T>; ++c) {
          sums[j][c] += gradient[c] * window[(k * kStride + j) % kColumns][c];
        }
      }
    }
  }
}

// For kernels with kColumns columns and no horizontal dilation. partials as above: a thread sums
// one row of the kernel over a chunk of the strips. Threads of one chunk are adjacent, as they read
// the same dy and x.
template <typename T, int kColumns, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    DepthwiseStripsKernel(const T* dy, const T* x, DepthwiseSize<int> z, StripGrid grid,
                          float* partials) {
  unsigned e = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned lane = e % grid.lanes;
  e /= grid.lanes;
  const auto i = static_cast<int>(e % static_cast<unsigned>(z.kernel_height));
  e /= static_cast<unsigned>(z.kernel_height);
  const auto channel = static_cast<int>(e % grid.tiles * grid.lanes + lane) * kTogether<T>;
  const std::int64_t chunk = e / grid.tiles;
  if (chunk >= grid.chunks || channel >= z.channels) return;
  const std::int64_t end = grid.strips * (chunk + 1) / grid.chunks;
  std::int64_t strip = grid.strips * chunk / grid.chunks;
  auto p = static_cast<int>(strip % z.rows);
  auto q = static_cast<int>(strip / z.rows % grid.strips_of_row) * StripLength(kColumns);
  std::int64_t n = strip / z.rows / grid.strips_of_row;
  float sums[kColumns][kTogether<T>] = {};
  for (; strip < end; ++strip) {
    const int h = p * z.stride[0] - z.padding[0] + i * z.dilation[0];
    if (h >= 0 && h < z.height) {
      AddStrip<T, kColumns, kStride>(dy + (n * z.rows + p) * z.columns * z.channels + channel,
                                     x + (n * z.height + h) * z.width * z.channels + channel, q,
                                     std::min(q + StripLength(kColumns), z.columns), z, sums);
    }
    if (++p < z.rows) continue;
    p = 0;
    q += StripLength(kColumns);
    if (q < z.columns) continue;
    q = 0;
    ++n;
  }
  float* to = partials + (chunk * z.kernel_height + i) * kColumns * z.channels + channel;
#pragma unroll
  for (int j = 0; j < kColumns; ++j, to += z.channels) {
    if constexpr (kTogether<T> == kVectorWidth<float>) {
      Store<Use::kAgain>(to, sums[j]);
    } else {
      for (int c = 0; c < kTogether<T>; ++c) to[c] = sums[j][c];
    }
  }
}

}  // namespace gaccd::depthwise
