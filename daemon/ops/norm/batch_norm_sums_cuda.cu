// Sums of batch norms: partial sums of chunks of the rows (batch_norm_partials_cuda.h), which other
// kernels add in a fixed order.
#include <algorithm>

#include "daemon/ops/norm/batch_norm_partials_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using namespace batch_norm;  // NOLINT: kernels of one function in two files
using Call = CallKernel::Call;

// Threads of a block that adds chunks: one per channel and per every kAdders-th chunk.
constexpr unsigned kChannelsPerAdder = 16;
constexpr unsigned kAdders = kThreads / kChannelsPerAdder;

struct TwoSums {
  double first, second;
};
using SharedSums = TwoSums[kAdders][kChannelsPerAdder];

__device__ inline std::int64_t AdderChannel() {
  return static_cast<std::int64_t>(blockIdx.x) * kChannelsPerAdder +
         threadIdx.x % kChannelsPerAdder;
}
__device__ inline bool IsFirstAdder() { return threadIdx.x < kChannelsPerAdder; }

// The sum of all chunks, for the first adder. All threads of a block must call this.
__device__ inline TwoSums AddChunks(const double* partials, std::int64_t part, const NormSize& z,
                                    std::int64_t chunks, SharedSums& shared) {
  const unsigned adder = threadIdx.x / kChannelsPerAdder;
  const std::int64_t channel = AdderChannel();
  TwoSums sums{};
  const std::int64_t mine = channel < z.channels ? chunks : 0;
  const double* from = partials + (part * chunks + adder) * 2 * z.channels + channel;
  const std::int64_t step = kAdders * 2 * z.channels;
  constexpr int kInFlight = 8;
  std::int64_t chunk = adder;
  for (; chunk + (kInFlight - 1) * kAdders < mine; chunk += kInFlight * kAdders) {
    TwoSums loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) loaded[k] = {from[k * step], from[k * step + z.channels]};
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      sums.first += loaded[k].first;
      sums.second += loaded[k].second;
    }
    from += kInFlight * step;
  }
  for (; chunk < mine; chunk += kAdders, from += step) {
    sums.first += from[0];
    sums.second += from[z.channels];
  }
  __syncthreads();  // of the previous part
  shared[adder][threadIdx.x % kChannelsPerAdder] = sums;
  __syncthreads();
  if (!IsFirstAdder()) return sums;
  for (unsigned other = 1; other < kAdders; ++other) {
    sums.first += shared[other][threadIdx.x].first;
    sums.second += shared[other][threadIdx.x].second;
  }
  return sums;
}

[[nodiscard]] LaunchShape AdderShape(const NormSize& z) {
  return {static_cast<unsigned>((z.channels + kChannelsPerAdder - 1) / kChannelsPerAdder),
          kThreads};
}

__global__ void __launch_bounds__(kThreads)
    ChannelSumsKernel(const double* partials, const std::int64_t* position, NormSize z,
                      std::int64_t chunks, double* sums) {
  __shared__ SharedSums shared;
  const std::int64_t channel = AdderChannel();
  for (std::int64_t p = 0; p < z.parts(); ++p) {
    const Part part = z.At(p, position);
    if (part.rows == 0 || part.group < 0) continue;
    const TwoSums found = AddChunks(partials, p, z, chunks, shared);
    if (!IsFirstAdder() || channel >= z.channels) continue;
    double* to = sums + part.group * (2 * z.channels + 1);
    to[channel] = found.first;
    to[z.channels + channel] = found.second;
    if (channel == 0) to[2 * z.channels] = static_cast<double>(part.rows);
  }
}

__global__ void __launch_bounds__(kThreads)
    GradientSumsKernel(const double* partials, const double* sums, const std::int64_t* position,
                       NormSize z, std::int64_t chunks, double eps, double* found, float* dgamma,
                       bool add_gamma, float* dbeta, bool add_beta) {
  __shared__ SharedSums shared;
  const std::int64_t channel = AdderChannel();
  const bool writes = IsFirstAdder() && channel < z.channels;
  double of_gamma = writes && add_gamma ? static_cast<double>(dgamma[channel]) : 0;
  double of_beta = writes && add_beta ? static_cast<double>(dbeta[channel]) : 0;
  for (std::int64_t p = 0; p < z.parts(); ++p) {
    const Part part = z.At(p, position);
    if (part.rows == 0 || part.group < 0) continue;
    const TwoSums of_part = AddChunks(partials, p, z, chunks, shared);
    if (!writes) continue;
    const Moments moments =
        ComputeMoments(PartGroupSums(sums, part, z.channels), z.channels, channel, eps);
    const double missing = static_cast<double>(static_cast<float>(moments.mean)) - moments.mean;
    const double db = of_part.first;
    const double dg = (of_part.second + missing * db) * moments.rstd;
    found[part.group * 2 * z.channels + channel] = db;
    found[(part.group * 2 + 1) * z.channels + channel] = dg;
    of_gamma += dg;
    of_beta += db;
  }
  if (!writes) return;
  dgamma[channel] = static_cast<float>(of_gamma);
  dbeta[channel] = static_cast<float>(of_beta);
}

__global__ void __launch_bounds__(kThreads)
    FixedSumsKernel(const float* mean, const float* variance, std::int64_t channels, double* sums) {
  const std::int64_t channel = GridIndex();
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
  const std::int64_t channel = GridIndex();
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

// The scratch of both kernels: factors, then partial sums for the largest width.
double* PartialsIn(const Call& c, const NormSize& z) {
  return reinterpret_cast<double*>(static_cast<float*>(c.scratch) +
                                   (FactorElements(z) + 1) / 2 * 2);
}
std::size_t ScratchBytes(const KernelStream& on, const NormSize& z) {
  std::int64_t chunks = 0;
  for (const int width : {1, kVectorWidth<float>, kVectorWidth<Bf16>}) {
    if (z.channels % width == 0) chunks = std::max(chunks, GridFor(on, z, width).chunks);
  }
  return static_cast<std::size_t>(FactorElements(z) + 2) * sizeof(float) +
         static_cast<std::size_t>(z.parts() * chunks * 2 * z.channels) * sizeof(double);
}

// dy null: sums of x.
template <typename T, int kWidth>
Status LaunchPartialSums(const KernelStream& on, const Call& c, const NormSize& z,
                         const NormGrid& grid, const T* x, const T* dy, bool relu) {
  const auto kernel = dy == nullptr ? PartialSumsKernel<T, kWidth, false, false>
                      : relu        ? PartialSumsKernel<T, kWidth, true, true>
                                    : PartialSumsKernel<T, kWidth, true, false>;
  return Launch(kernel, grid.shape(z), on.stream, "batch_norm", x, dy,
                static_cast<const float*>(c.scratch), PositionInput(c, z), z, grid,
                PartialsIn(c, z));
}
template <typename T>
Status EnqueuePartialSums(const KernelStream& on, const Call& c, const NormSize& z,
                          const NormGrid& grid, const T* x, const T* dy, bool relu) {
  const auto launch =
      grid.width > 1 ? LaunchPartialSums<T, kVectorWidth<T>> : LaunchPartialSums<T, 1>;
  return launch(on, c, z, grid, x, dy, relu);
}

// Groups of other micro-batches have sums of 0 here.
Status Clear(cudaStream_t stream, const NormSize& z, double* sums, std::int64_t elements) {
  if (z.runs.size == 0) return Status::Ok();
  return CudaStatus(
      cudaMemsetAsync(sums, 0, static_cast<std::size_t>(elements) * sizeof(double), stream),
      "sums of runs");
}

}  // namespace

KernelResult MakeChannelSumsCuda(const CudaRequest& request) {
  const auto& function = static_cast<const ChannelSums&>(request.function);
  const NormSize z = MakeNormSize(request.inputs[0], function.runs());
  return MakeTypedCall(
      request,
      [=, on = request.on, elements = Elements(request.outputs[0].shape)](auto t, const Call& c) {
        using T = decltype(t);
        const T* const x = c.in<T>(0);
        const T* const no_gradient = nullptr;
        const NormGrid grid = GridFor(on, z, WidthFor<T>(z, x));
        GACCD_RETURN_IF_ERROR(Clear(on.stream, z, c.out<double>(0), elements));
        GACCD_RETURN_IF_ERROR(EnqueuePartialSums(on, c, z, grid, x, no_gradient, false));
        return Launch(ChannelSumsKernel, AdderShape(z), on.stream, "channel_sums", PartialsIn(c, z),
                      PositionInput(c, z), z, grid.chunks, c.out<double>(0));
      },
      ScratchBytes(request.on, z));
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
  const NormSize z = MakeNormSize(request.inputs[1], function.runs());
  const double eps = double{function.eps()};
  return MakeTypedCall(
      request,
      [=, on = request.on, relu = function.relu(), elements = Elements(request.outputs[0].shape)](
          auto t, const Call& c) {
        using T = decltype(t);
        const T* const dy = c.in<T>(0);
        const T* const x = c.in<T>(1);
        const auto* const sums = c.in<double>(2);
        const NormGrid grid = GridFor(on, z, WidthFor<T>(z, dy, x));
        GACCD_RETURN_IF_ERROR(Clear(on.stream, z, c.out<double>(0), elements));
        GACCD_RETURN_IF_ERROR(EnqueueFactors(on, z, eps, sums, relu ? c.in<float>(3) : nullptr,
                                             relu ? c.in<float>(4) : nullptr, false, nullptr,
                                             PositionInput(c, z), static_cast<float*>(c.scratch)));
        GACCD_RETURN_IF_ERROR(EnqueuePartialSums(on, c, z, grid, x, dy, relu));
        return Launch(GradientSumsKernel, AdderShape(z), on.stream, "batch_norm_gradient_sums",
                      PartialsIn(c, z), sums, PositionInput(c, z), z, grid.chunks, eps,
                      c.out<double>(0), c.out<float>(1), c.add[1], c.out<float>(2), c.add[2]);
      },
      ScratchBytes(request.on, z));
}

}  // namespace gaccd
