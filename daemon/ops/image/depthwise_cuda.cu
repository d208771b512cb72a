// The weight gradient of a depthwise convolution. Threads sum chunks of the results, and a second
// kernel adds the partial sums, in an order that depends only on the sizes and on the number of
// multiprocessors.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/image/conv2d_cuda.h"
#include "daemon/ops/image/depthwise_partials_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using namespace depthwise;  // NOLINT: kernels of one function in two files

constexpr unsigned kSumThreads = 1024;

// dweight [C, area]. Each warp adds every 32nd chunk, then the first warp adds their sums.
__global__ void __launch_bounds__(kSumThreads)
    DepthwiseSumKernel(const float* partials, std::int64_t chunks, std::int64_t channels,
                       std::int64_t area, float* dweight, bool add) {
  constexpr unsigned kSumWarps = kSumThreads / kWarp;
  __shared__ double of_warps[kSumWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t e = std::int64_t{blockIdx.x} * kWarp + lane;
  const std::int64_t elements = channels * area;
  double sum = 0;
  if (e < elements) {
    // keeps loads of several chunks in flight
#pragma unroll 8
    for (std::int64_t chunk = warp; chunk < chunks; chunk += kSumWarps) {
      sum += static_cast<double>(partials[chunk * elements + e]);
    }
  }
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || e >= elements) return;
  float* const to = dweight + e % channels * area + e / channels;
  double total = add ? static_cast<double>(*to) : 0.0;
  for (unsigned w = 0; w < kSumWarps; ++w) total += of_warps[w][lane];
  *to = static_cast<float>(total);
}

// Enough threads for the GPU, each with enough results.
std::int64_t ResultChunks(const KernelStream& on, const ConvSize& size) {
  constexpr std::int64_t kLeast = 64;  // minimum results per thread
  const std::int64_t wanted =
      std::int64_t{on.multiprocessors} * 8 * kThreads / (size.in * size.area()) + 1;
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, size.results() / kLeast));
}

// For any type: whether every thread of DepthwiseStripsKernel has whole channels, and its indices
// fit.
bool CanUseStrips(const ConvSize& z) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  const std::int64_t kw = z.kernel[1];
  const std::int64_t down = (z.result[0] + 1) * z.stride[0] + z.kernel[0] * z.dilation[0];
  const std::int64_t right = (z.result[1] + 28) * z.stride[1] + kw;
  return (kw == 3 || kw == 5 || kw == 7) && z.dilation[1] == 1 && z.stride[1] <= 2 &&
         z.in % kTogether<Bf16> == 0 && down + z.padding[0] + z.image[0] < kMost &&
         (right + z.padding[1] + z.image[1]) * z.in < kMost && z.kernel[0] * z.in < kMost;
}

// Two waves of blocks: with one, a multiprocessor occupied by another kernel would double the time.
StripGrid MakeStripGrid(const KernelStream& on, const ConvSize& z, std::int64_t together) {
  constexpr std::int64_t kLeast = 4;  // minimum strips per thread
  const int strip = StripLength(static_cast<int>(z.kernel[1]));
  const std::int64_t vectors = z.in / together;
  const std::int64_t tiles = (vectors + kWarp - 1) / kWarp;
  const std::int64_t strips_of_row = (z.result[1] + strip - 1) / strip;
  const std::int64_t strips = z.images * z.result[0] * strips_of_row;
  const std::int64_t threads = z.kernel[0] * (z.in / kTogether<Bf16>);  // per chunk, for any type
  const std::int64_t chunks =
      std::clamp<std::int64_t>(std::int64_t{on.multiprocessors} * 4 * kThreads / threads, 1,
                               std::max<std::int64_t>(1, strips / kLeast));
  return {.lanes = static_cast<unsigned>((vectors + tiles - 1) / tiles),
          .tiles = static_cast<unsigned>(tiles),
          .chunks = static_cast<unsigned>(chunks),
          .strips_of_row = strips_of_row,
          .strips = strips};
}

template <typename T, int kColumns>
Status LaunchStrips(const KernelStream& on, const char* name, const ConvSize& size,
                    const StripGrid& grid, const void* dy, const void* x, float* partials) {
  const auto kernel = size.stride[1] == 1 ? DepthwiseStripsKernel<T, kColumns, 1>
                                          : DepthwiseStripsKernel<T, kColumns, 2>;
  const std::int64_t threads = std::int64_t{grid.lanes} * grid.tiles * grid.chunks * size.kernel[0];
  return Launch(kernel, {BlocksFor(threads, kThreads), kThreads}, on.stream, name,
                static_cast<const T*>(dy), static_cast<const T*>(x), DepthwiseSize<int>(size), grid,
                partials);
}

}  // namespace

std::int64_t DepthwiseScratchBytes(const KernelStream& on, const ConvSize& size) {
  std::int64_t chunks = ResultChunks(on, size);
  if (CanUseStrips(size)) {
    chunks = std::max<std::int64_t>(chunks, MakeStripGrid(on, size, kTogether<Bf16>).chunks);
  }
  return chunks * size.area() * size.in * static_cast<std::int64_t>(sizeof(float));
}

Status EnqueueDepthwiseWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                      const void* dy, const void* x, float* scratch, float* dweight,
                                      bool add) {
  constexpr const char* kName = "conv2d_weight_gradient";
  std::int64_t chunks = ResultChunks(on, size);
  const bool strips =
      CanUseStrips(size) && IsVectorAligned(dy) && IsVectorAligned(x) && IsVectorAligned(scratch);
  GACCD_RETURN_IF_ERROR(WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    if (strips) {
      const StripGrid grid = MakeStripGrid(on, size, kTogether<T>);
      chunks = grid.chunks;
      const auto launch = size.kernel[1] == 3   ? LaunchStrips<T, 3>
                          : size.kernel[1] == 5 ? LaunchStrips<T, 5>
                                                : LaunchStrips<T, 7>;
      return launch(on, kName, size, grid, dy, x, scratch);
    }
    const std::int64_t partials = chunks * size.area() * size.in;
    return Launch(DepthwisePartialsKernel<T>, {BlocksFor(partials, kThreads), kThreads}, on.stream,
                  kName, static_cast<const T*>(dy), static_cast<const T*>(x),
                  DepthwiseSize<std::int64_t>(size), size.results(), chunks, scratch);
  }));
  return Launch(DepthwiseSumKernel, {BlocksFor(size.in * size.area(), kWarp), kSumThreads},
                on.stream, kName, static_cast<const float*>(scratch), chunks, size.in, size.area(),
                dweight, add);
}

}  // namespace gaccd
