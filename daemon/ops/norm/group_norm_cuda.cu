// A block processes one group of one sample. The sums for gamma and beta are those of the channels
// of every sample, which its input gradient needs as well; a second kernel adds the samples in
// order.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/norm/group_norm.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct GroupNormSize {
  std::int64_t samples, pixels, channels, groups;

  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t width() const { return channels / groups; }
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t group_elements() const { return pixels * width(); }
};

// BlockSum() with the result in all threads. May be called repeatedly.
__device__ inline double SumForAll(double value) {
  __shared__ double total;
  const double sum = BlockSum(value);
  if (threadIdx.x == 0) total = sum;
  __syncthreads();
  const double result = total;
  __syncthreads();
  return result;
}

// Calls action(offset, channel) for the values of group `group`, counted over all samples.
template <typename Action>
__device__ inline void ForGroup(const GroupNormSize& z, std::int64_t group, const Action& action) {
  const std::int64_t width = z.width();
  const std::int64_t first = group % z.groups * width;
  const std::int64_t sample = group / z.groups * z.pixels;
  for (std::int64_t i = threadIdx.x; i < z.group_elements(); i += blockDim.x) {
    const std::int64_t channel = first + i % width;
    action((sample + i / width) * z.channels + channel, channel);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GroupNormKernel(const T* x, const float* gamma, const float* beta, GroupNormSize z, float eps,
                    T* y, float* means, float* rstds) {
  const auto count = static_cast<double>(z.group_elements());
  for (std::int64_t group = blockIdx.x; group < z.samples * z.groups; group += gridDim.x) {
    float sum = 0;
    ForGroup(z, group, [&](std::int64_t i, std::int64_t) { sum += ToFloat(x[i]); });
    const auto rounded = static_cast<float>(SumForAll(static_cast<double>(sum)) / count);
    float differences = 0;
    float squares = 0;
    ForGroup(z, group, [&](std::int64_t i, std::int64_t) {
      const float difference = ToFloat(x[i]) - rounded;
      differences += difference;
      squares += difference * difference;
    });
    // The rounding error of a large mean: equal values are exactly 0 from it.
    const double error = SumForAll(static_cast<double>(differences)) / count;
    const auto mean = static_cast<float>(static_cast<double>(rounded) + error);
    const double variance = SumForAll(static_cast<double>(squares)) / count - error * error;
    const float rstd = 1.0F / sqrtf(static_cast<float>(variance < 0 ? 0 : variance) + eps);
    ForGroup(z, group, [&](std::int64_t i, std::int64_t c) {
      y[i] = FromFloat<T>((ToFloat(x[i]) - mean) * rstd * gamma[c] + beta[c]);
    });
    if (threadIdx.x != 0) continue;
    means[group] = mean;
    rstds[group] = rstd;
  }
}

// sums [samples, 2, channels]: of dy, and of dy h. A block processes 32 channels of a sample, one
// per lane.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    GroupChannelSumsKernel(const T* dy, const T* x, const float* means, const float* rstds,
                           GroupNormSize z, float* sums) {
  constexpr std::int64_t kPixels = 32 * std::int64_t{kWarps};  // of which a thread adds 32 in f32
  __shared__ double of_warps[2][kWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t tiles = (z.channels + kWarp - 1) / kWarp;
  const std::int64_t sample = blockIdx.x / tiles;
  const std::int64_t channel = blockIdx.x % tiles * kWarp + lane;
  double all_dy = 0;
  double all_products = 0;
  if (channel < z.channels) {
    const std::int64_t group = sample * z.groups + channel / z.width();
    for (std::int64_t begin = 0; begin < z.pixels; begin += kPixels) {
      const std::int64_t end = begin + kPixels < z.pixels ? begin + kPixels : z.pixels;
      float of_dy = 0;
      float of_product = 0;
      for (std::int64_t p = begin + warp; p < end; p += kWarps) {
        const std::int64_t i = (sample * z.pixels + p) * z.channels + channel;
        const float value = ToFloat(dy[i]);
        of_dy += value;
        of_product += value * ((ToFloat(x[i]) - means[group]) * rstds[group]);
      }
      all_dy += static_cast<double>(of_dy);
      all_products += static_cast<double>(of_product);
    }
  }
  of_warps[0][warp][lane] = all_dy;
  of_warps[1][warp][lane] = all_products;
  __syncthreads();
  if (warp >= 2 || channel >= z.channels) return;
  double sum = 0;
  for (unsigned w = 0; w < kWarps; ++w) sum += of_warps[warp][w][lane];
  sums[(2 * sample + warp) * z.channels + channel] = static_cast<float>(sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GroupNormGradientKernel(const T* dy, const T* x, const float* gamma, const float* means,
                            const float* rstds, const float* sums, GroupNormSize z, T* dx) {
  const auto count = static_cast<double>(z.group_elements());
  for (std::int64_t group = blockIdx.x; group < z.samples * z.groups; group += gridDim.x) {
    const float* of_dy = sums + 2 * (group / z.groups) * z.channels;
    const float* of_product = of_dy + z.channels;
    const std::int64_t first = group % z.groups * z.width();
    float d = 0;
    float dh = 0;
    for (std::int64_t c = first + threadIdx.x; c < first + z.width(); c += blockDim.x) {
      d += gamma[c] * of_dy[c];
      dh += gamma[c] * of_product[c];
    }
    const auto mean_d = static_cast<float>(SumForAll(static_cast<double>(d)) / count);
    const auto mean_dh = static_cast<float>(SumForAll(static_cast<double>(dh)) / count);
    const float mean = means[group];
    const float rstd = rstds[group];
    ForGroup(z, group, [&](std::int64_t i, std::int64_t c) {
      const float h = (ToFloat(x[i]) - mean) * rstd;
      dx[i] = FromFloat<T>(rstd * (ToFloat(dy[i]) * gamma[c] - mean_d - h * mean_dh));
    });
  }
}

__global__ void __launch_bounds__(kThreads)
    AddSamplesKernel(const float* sums, GroupNormSize z, float* dgamma, bool add_gamma,
                     float* dbeta, bool add_beta) {
  const std::int64_t channel = GridIndex();
  if (channel >= z.channels) return;
  double of_dy = 0;
  double of_product = 0;
  for (std::int64_t n = 0; n < z.samples; ++n) {
    of_dy += static_cast<double>(sums[2 * n * z.channels + channel]);
    of_product += static_cast<double>(sums[(2 * n + 1) * z.channels + channel]);
  }
  const auto gamma = static_cast<float>(of_product);
  const auto beta = static_cast<float>(of_dy);
  dgamma[channel] = add_gamma ? dgamma[channel] + gamma : gamma;
  dbeta[channel] = add_beta ? dbeta[channel] + beta : beta;
}

GroupNormSize MakeNormSize(const ValueSpec& x, const ValueSpec& mean) {
  return {x.shape[0], x.shape[1] * x.shape[2], x.shape[3], mean.shape[1]};
}

LaunchShape GroupShape(const CudaRequest& request, const GroupNormSize& z) {
  return {request.on.Blocks(z.samples * z.groups, 1), kThreads};
}

}  // namespace

KernelResult MakeGroupNormCuda(const CudaRequest& request) {
  const float eps = static_cast<const GroupNorm&>(request.function).eps();
  const GroupNormSize size = MakeNormSize(request.inputs[0], request.outputs[1]);
  return MakeTypedCall(request, [=, stream = request.on.stream, shape = GroupShape(request, size)](
                                    auto t, const Call& c) {
    using T = decltype(t);
    return Launch(GroupNormKernel<T>, shape, stream, "group_norm", c.in<T>(0), c.in<float>(1),
                  c.in<float>(2), size, eps, c.out<T>(0), c.out<float>(1), c.out<float>(2));
  });
}

KernelResult MakeGroupNormGradientCuda(const CudaRequest& request) {
  const GroupNormSize size = MakeNormSize(request.inputs[1], request.inputs[3]);
  const auto tiles = static_cast<unsigned>(size.samples) * BlocksFor(size.channels, kWarp);
  return MakeTypedCall(
      request,
      [=, stream = request.on.stream, shape = GroupShape(request, size)](auto t, const Call& c) {
        using T = decltype(t);
        auto* const sums = static_cast<float*>(c.scratch);
        GACCD_RETURN_IF_ERROR(Launch(GroupChannelSumsKernel<T>, {tiles, kThreads}, stream,
                                     "group_norm_gradient", c.in<T>(0), c.in<T>(1), c.in<float>(3),
                                     c.in<float>(4), size, sums));
        GACCD_RETURN_IF_ERROR(Launch(GroupNormGradientKernel<T>, shape, stream,
                                     "group_norm_gradient", c.in<T>(0), c.in<T>(1), c.in<float>(2),
                                     c.in<float>(3), c.in<float>(4), sums, size, c.out<T>(0)));
        return Launch(AddSamplesKernel, {BlocksFor(size.channels, kThreads), kThreads}, stream,
                      "group_norm_gradient", sums, size, c.out<float>(1), c.add[1], c.out<float>(2),
                      c.add[2]);
      },
      static_cast<std::size_t>(2 * size.samples * size.channels) * sizeof(float));
}

}  // namespace gaccd
