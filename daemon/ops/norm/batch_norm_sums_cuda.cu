// The sums of batch norms. A warp sums rows of 32 channels, a lane one of them; blocks take chunks
// of the rows, and another kernel adds what they found, in their order.
#include <algorithm>

#include "daemon/ops/norm/batch_norm_parts_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using namespace batch_norm;  // NOLINT: kernels of one function in two files
using Call = CallKernel::Call;

// partials [parts, chunks, 2, channels]: of x and x^2; with dy, of dy and dy (x - mean), the mean
// in f32. Block: (part, chunk of its rows, 32 channels).
template <typename T>
__global__ void __launch_bounds__(kThreads)
    PartialSumsKernel(const T* x, const T* dy, const double* sums, const std::int64_t* position,
                      NormSize z, std::int64_t chunks, double* partials) {
  __shared__ double of_warps[2][kWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t tiles = (z.channels + kWarp - 1) / kWarp;
  const std::int64_t channel = blockIdx.x % tiles * kWarp + lane;
  const std::int64_t chunk = blockIdx.x / tiles % chunks;
  const std::int64_t p = blockIdx.x / tiles / chunks;
  const Part part = z.At(p, position);
  double sum = 0;
  double product = 0;
  if (channel < z.channels && part.group >= 0) {
    float mean = 0;
    if (dy != nullptr) {
      const double* group = SumsOf(sums, part, z.channels);
      mean = static_cast<float>(group[channel] / group[2 * z.channels]);
    }
    const std::int64_t end = part.first + part.rows * (chunk + 1) / chunks;
    // Loads of several rows are on their way at a time.
#pragma unroll 4
    for (std::int64_t row = part.first + part.rows * chunk / chunks + warp; row < end;
         row += kWarps) {
      const std::int64_t i = row * z.channels + channel;
      const float value = ToFloat(x[i]);
      const double a = dy != nullptr ? static_cast<double>(ToFloat(dy[i])) : value;
      sum += a;
      product += a * static_cast<double>(value - mean);
    }
  }
  of_warps[0][warp][lane] = sum;
  of_warps[1][warp][lane] = product;
  __syncthreads();
  if (warp >= 2 || channel >= z.channels) return;
  double total = 0;
  for (unsigned w = 0; w < kWarps; ++w) total += of_warps[warp][w][lane];
  partials[((p * chunks + chunk) * 2 + warp) * z.channels + channel] = total;
}

// The sums of chunks, in their order.
__device__ inline double SumOfChunks(const double* partials, std::int64_t part, unsigned which,
                                     const NormSize& z, std::int64_t chunks, std::int64_t channel) {
  double sum = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    sum += partials[((part * chunks + chunk) * 2 + which) * z.channels + channel];
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    ChannelSumsKernel(const double* partials, const std::int64_t* position, NormSize z,
                      std::int64_t chunks, double* sums) {
  const std::int64_t channel = Thread();
  if (channel >= z.channels) return;
  for (std::int64_t p = 0; p < z.parts(); ++p) {
    const Part part = z.At(p, position);
    if (part.rows == 0 || part.group < 0) continue;
    double* to = sums + part.group * (2 * z.channels + 1);
    to[channel] = SumOfChunks(partials, p, 0, z, chunks, channel);
    to[z.channels + channel] = SumOfChunks(partials, p, 1, z, chunks, channel);
    if (channel == 0) to[2 * z.channels] = static_cast<double>(part.rows);
  }
}

__global__ void __launch_bounds__(kThreads)
    GradientSumsKernel(const double* partials, const double* sums, const std::int64_t* position,
                       NormSize z, std::int64_t chunks, double eps, double* found, float* dgamma,
                       bool add_gamma, float* dbeta, bool add_beta) {
  const std::int64_t channel = Thread();
  if (channel >= z.channels) return;
  double of_gamma = add_gamma ? static_cast<double>(dgamma[channel]) : 0;
  double of_beta = add_beta ? static_cast<double>(dbeta[channel]) : 0;
  for (std::int64_t p = 0; p < z.parts(); ++p) {
    const Part part = z.At(p, position);
    if (part.rows == 0 || part.group < 0) continue;
    const Moments moments = MomentsOf(SumsOf(sums, part, z.channels), z.channels, channel, eps);
    const double missing = static_cast<double>(static_cast<float>(moments.mean)) - moments.mean;
    const double db = SumOfChunks(partials, p, 0, z, chunks, channel);
    const double dg =
        (SumOfChunks(partials, p, 1, z, chunks, channel) + missing * db) * moments.rstd;
    found[part.group * 2 * z.channels + channel] = db;
    found[(part.group * 2 + 1) * z.channels + channel] = dg;
    of_gamma += dg;
    of_beta += db;
  }
  dgamma[channel] = static_cast<float>(of_gamma);
  dbeta[channel] = static_cast<float>(of_beta);
}

__global__ void __launch_bounds__(kThreads)
    FixedSumsKernel(const float* mean, const float* variance, std::int64_t channels, double* sums) {
  const std::int64_t channel = Thread();
  if (channel >= channels) return;
  const auto value = static_cast<double>(mean[channel]);
  sums[channel] = value;
  sums[channels + channel] = static_cast<double>(variance[channel]) + value * value;
  if (channel == 0) sums[2 * channels] = 1;
}

struct AddsTo {
  bool mean, variance, updates;
};

__global__ void __launch_bounds__(kThreads)
    MicroStatisticsKernel(const double* sums, std::int64_t channels, AddsTo add, float* mean,
                          float* variance, float* updates) {
  const std::int64_t channel = Thread();
  if (channel >= channels) return;
  const auto put = [](float* to, bool adds, double value) {
    *to = static_cast<float>((adds ? static_cast<double>(*to) : 0.0) + value);
  };
  const double n = sums[2 * channels];
  const double variances = n * UnbiasedVariance(sums[channel], sums[channels + channel], n);
  put(mean + channel, add.mean, sums[channel]);
  put(variance + channel, add.variance, n > 0 ? variances : 0);
  if (channel == 0) put(updates, add.updates, n);
}

// Blocks enough for the GPU, each with some rows for every warp.
std::int64_t ChunksFor(const CudaRequest& request, const NormSize& z) {
  constexpr std::int64_t kRowsOfWarp = 16;
  const std::int64_t tiles = (z.channels + kWarp - 1) / kWarp;
  const std::int64_t rows_of_part = (z.rows + z.parts() - 1) / z.parts();
  const std::int64_t most = std::max<std::int64_t>(1, rows_of_part / (kWarps * kRowsOfWarp));
  const std::int64_t wanted = request.on.multiprocessors * 8 / (tiles * z.parts());
  return std::clamp<std::int64_t>(wanted, 1, most);
}

// dy null: those of x.
template <typename T>
Status LaunchPartialSums(cudaStream_t stream, const Call& c, const NormSize& z, std::int64_t chunks,
                         const T* x, const T* dy, const double* sums) {
  const std::int64_t tiles = (z.channels + kWarp - 1) / kWarp;
  const auto blocks = static_cast<unsigned>(tiles * chunks * z.parts());
  return Launch(PartialSumsKernel<T>, {blocks, kThreads}, stream, "batch_norm", x, dy, sums,
                PositionOf(c, z), z, chunks, static_cast<double*>(c.scratch));
}

std::size_t PartialBytes(const NormSize& z, std::int64_t chunks) {
  return static_cast<std::size_t>(z.parts() * chunks * 2 * z.channels) * sizeof(double);
}

// Groups of other micro-batches have no sums here.
Status Clear(cudaStream_t stream, const NormSize& z, double* sums, std::int64_t elements) {
  if (z.runs.size == 0) return Status::Ok();
  return CudaStatus(
      cudaMemsetAsync(sums, 0, static_cast<std::size_t>(elements) * sizeof(double), stream),
      "sums of runs");
}

}  // namespace

KernelResult MakeChannelSumsCuda(const CudaRequest& request) {
  const auto& function = static_cast<const ChannelSums&>(request.function);
  const NormSize z = SizeOf(request.inputs[0], function.runs());
  const std::int64_t chunks = ChunksFor(request, z);
  return MakeTypedCall(
      request,
      [=, stream = request.on.stream, elements = Elements(request.outputs[0].shape)](
          auto t, const Call& c) {
        using T = decltype(t);
        GACCD_RETURN_IF_ERROR(Clear(stream, z, c.out<double>(0), elements));
        GACCD_RETURN_IF_ERROR(
            LaunchPartialSums<T>(stream, c, z, chunks, c.in<T>(0), nullptr, nullptr));
        return Launch(ChannelSumsKernel, ShapeFor(z.channels), stream, "channel_sums",
                      static_cast<const double*>(c.scratch), PositionOf(c, z), z, chunks,
                      c.out<double>(0));
      },
      PartialBytes(z, chunks));
}

KernelResult MakeFixedSumsCuda(const CudaRequest& request) {
  return MakeCall(
      request, [stream = request.on.stream, channels = request.inputs[0].shape[0]](const Call& c) {
        return Launch(FixedSumsKernel, ShapeFor(channels), stream, "fixed_sums", c.in<float>(0),
                      c.in<float>(1), channels, c.out<double>(0));
      });
}

KernelResult MakeMicroStatisticsCuda(const CudaRequest& request) {
  return MakeCall(
      request, [stream = request.on.stream, channels = request.outputs[0].shape[0]](const Call& c) {
        return Launch(MicroStatisticsKernel, ShapeFor(channels), stream, "micro_statistics",
                      c.in<double>(0), channels, AddsTo{c.add[0], c.add[1], c.add[2]},
                      c.out<float>(0), c.out<float>(1), c.out<float>(2));
      });
}

KernelResult MakeBatchNormGradientSumsCuda(const CudaRequest& request) {
  const auto& function = static_cast<const BatchNormGradientSums&>(request.function);
  const NormSize z = SizeOf(request.inputs[1], function.runs());
  const double eps = double{function.eps()};
  const std::int64_t chunks = ChunksFor(request, z);
  return MakeTypedCall(
      request,
      [=, stream = request.on.stream, elements = Elements(request.outputs[0].shape)](
          auto t, const Call& c) {
        using T = decltype(t);
        GACCD_RETURN_IF_ERROR(Clear(stream, z, c.out<double>(0), elements));
        GACCD_RETURN_IF_ERROR(
            LaunchPartialSums<T>(stream, c, z, chunks, c.in<T>(1), c.in<T>(0), c.in<double>(2)));
        return Launch(GradientSumsKernel, ShapeFor(z.channels), stream, "batch_norm_gradient_sums",
                      static_cast<const double*>(c.scratch), c.in<double>(2), PositionOf(c, z), z,
                      chunks, eps, c.out<double>(0), c.out<float>(1), c.add[1], c.out<float>(2),
                      c.add[2]);
      },
      PartialBytes(z, chunks));
}

}  // namespace gaccd
