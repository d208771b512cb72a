#include <cmath>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/ops/norm/running_statistics_cuda.h"

namespace gaccd {
namespace {

struct Statistics {
  float mean;
  float variance;
};
__device__ inline Statistics ComputeStatistics(const RunningLayer& layer, std::int64_t channel) {
  const double n = layer.found[2 * layer.channels];
  const auto next = [&](float running, double sum) {
    return static_cast<float>((1 - layer.momentum) * static_cast<double>(running) +
                              layer.momentum * sum / n);
  };
  return {next(layer.mean[channel], layer.found[channel]),
          next(layer.variance[channel], layer.found[layer.channels + channel])};
}

// S1 of a channel, and the sum of n var n / (n - 1), over the runs.
__device__ inline void SumRuns(const RunningLayer& layer, std::int64_t channel) {
  const std::int64_t width = 2 * layer.channels + 1;
  double sum = 0;
  double variances = 0;
  double values = 0;
  for (std::int64_t run = 0; run < layer.runs; ++run) {
    const double* of_run = layer.sums + run * width;
    const double n = of_run[2 * layer.channels];
    if (n == 0) continue;  // a smaller update has fewer runs
    const double s = of_run[channel];
    sum += s;
    variances += n * UnbiasedVariance(s, of_run[layer.channels + channel], n);
    values += n;
  }
  layer.found[channel] = sum;
  layer.found[layer.channels + channel] = variances;
  if (channel == 0) layer.found[2 * layer.channels] = values;
}

// One block per layer.
__global__ void __launch_bounds__(kThreads) CollectKernel(const RunningLayer* layers) {
  const RunningLayer layer = layers[blockIdx.x];
  for (std::int64_t c = threadIdx.x; c < layer.channels; c += blockDim.x) {
    if (layer.sums != nullptr) {
      SumRuns(layer, c);
      continue;
    }
    layer.found[c] = static_cast<double>(layer.mean_gradient[c]);
    layer.found[layer.channels + c] = static_cast<double>(layer.variance_gradient[c]);
    if (c == 0) layer.found[2 * layer.channels] = static_cast<double>(*layer.updates_gradient);
  }
  __syncthreads();  // all threads have read the count
  for (std::int64_t c = threadIdx.x; c < layer.channels; c += blockDim.x) {
    const Statistics next = ComputeStatistics(layer, c);
    const bool finite = next.mean - next.mean == 0 && next.variance - next.variance == 0;
    layer.mean_gradient[c] = finite ? 0.0F : NAN;
    layer.variance_gradient[c] = 0;
    if (c == 0) *layer.updates_gradient = 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    AddKernel(const RunningLayer* layers, const std::int32_t* idle) {
  if (*idle != 0) return;
  const RunningLayer layer = layers[blockIdx.x];
  for (std::int64_t c = threadIdx.x; c < layer.channels; c += blockDim.x) {
    const Statistics next = ComputeStatistics(layer, c);
    layer.mean[c] = next.mean;
    layer.variance[c] = next.variance;
    if (c == 0) *layer.updates += 1;
  }
}

__global__ void __launch_bounds__(kThreads)
    AddSumsKernel(const double* from, std::int64_t elements, double* to) {
  const std::int64_t i = GridIndex();
  if (i < elements) to[i] += from[i];
}

__global__ void __launch_bounds__(kWarp) SetKernel(std::int64_t value, std::int64_t* to) {
  if (threadIdx.x == 0) *to = value;
}

}  // namespace

Status EnqueueCollectRunning(cudaStream_t stream, const RunningLayer* layers, std::size_t count) {
  return Launch(CollectKernel, {static_cast<unsigned>(count), kThreads}, stream,
                "running statistics", layers);
}

Status EnqueueAddToRunning(cudaStream_t stream, const RunningLayer* layers, std::size_t count,
                           const std::int32_t* idle) {
  return Launch(AddKernel, {static_cast<unsigned>(count), kThreads}, stream, "running statistics",
                layers, idle);
}

Status EnqueueAddSums(cudaStream_t stream, const double* from, std::int64_t elements, double* to) {
  return Launch(AddSumsKernel, {BlocksFor(elements, kThreads), kThreads}, stream,
                "sums over the update", from, elements, to);
}

Status EnqueueSet(cudaStream_t stream, std::int64_t value, std::int64_t* to) {
  return Launch(SetKernel, {1, kWarp}, stream, "position of a micro-batch", value, to);
}

}  // namespace gaccd
