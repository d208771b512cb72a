// Sums are computed by channel, all channels in parallel, and then added by group.
#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/norm/group_norm.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct NormSize {
  std::int64_t samples, pixels, channels, groups;

  [[nodiscard]] std::int64_t width() const { return channels / groups; }
  [[nodiscard]] double count() const { return static_cast<double>(pixels * width()); }
  [[nodiscard]] std::int64_t sample() const { return pixels * channels; }
};

// The pixels of a block are added in f32, and blocks in f64.
constexpr std::int64_t kPixels = 32;

// sums[c] += value(i) over all pixels of a sample, i the offset of channel c; block: [channels].
template <typename Value>
[[gnu::always_inline]] inline void AddChannels(const NormSize& z, const Value& value, float* block,
                                               double* sums) {
  for (std::int64_t begin = 0; begin < z.pixels; begin += kPixels) {
    std::fill_n(block, z.channels, 0.0F);
    for (std::int64_t p = begin; p < std::min(begin + kPixels, z.pixels); ++p) {
      GACCD_INDEPENDENT_ITERATIONS
      for (std::int64_t c = 0; c < z.channels; ++c) block[c] += value(p * z.channels + c, c);
    }
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < z.channels; ++c) sums[c] += static_cast<double>(block[c]);
  }
}

GACCD_SIMD_CLONES
void AddValues(const NormSize& z, const float* x, float* block, double* sums) {
  AddChannels(
      z, [x](std::int64_t i, std::int64_t) { return x[i]; }, block, sums);
}

GACCD_SIMD_CLONES
void AddDifferences(const NormSize& z, const float* x, const float* mean, float* block,
                    double* sums) {
  AddChannels(
      z, [x, mean](std::int64_t i, std::int64_t c) { return x[i] - mean[c]; }, block, sums);
}

GACCD_SIMD_CLONES
void AddSquares(const NormSize& z, const float* x, const float* mean, float* block, double* sums) {
  AddChannels(
      z, [x, mean](std::int64_t i, std::int64_t c) { return (x[i] - mean[c]) * (x[i] - mean[c]); },
      block, sums);
}

GACCD_SIMD_CLONES
void AddProducts(const NormSize& z, const float* dy, const float* x, const float* mean,
                 const float* rstd, float* block, double* sums) {
  AddChannels(
      z, [=](std::int64_t i, std::int64_t c) { return dy[i] * ((x[i] - mean[c]) * rstd[c]); },
      block, sums);
}

// y = (x - mean) factor + beta
GACCD_SIMD_CLONES
void Normalize(const NormSize& z, const float* x, const float* mean, const float* factor,
               const float* beta, float* y) {
  for (std::int64_t p = 0; p < z.pixels; ++p, x += z.channels, y += z.channels) {
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < z.channels; ++c) y[c] = (x[c] - mean[c]) * factor[c] + beta[c];
  }
}

// Terms that are equal for all pixels, by channel.
struct ChannelTerms {
  float* mean;
  float* rstd;
  float* mean_d;   // mean of d over the group
  float* mean_dh;  // mean of d h
};

// dx may alias dy.
GACCD_SIMD_CLONES
void InputGradient(const NormSize& z, const float* dy, const float* x, const float* gamma,
                   const ChannelTerms& t, float* dx) {
  for (std::int64_t p = 0; p < z.pixels; ++p) {
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < z.channels; ++c) {
      const float h = (x[c] - t.mean[c]) * t.rstd[c];
      dx[c] = t.rstd[c] * (dy[c] * gamma[c] - t.mean_d[c] - h * t.mean_dh[c]);
    }
    dy += z.channels, x += z.channels, dx += z.channels;
  }
}

// to[c] = of_group(first channel) for all channels of each group.
template <typename OfGroup>
void ForGroups(const NormSize& z, const OfGroup& of_group, float* to) {
  for (std::int64_t g = 0; g < z.groups; ++g) {
    std::fill_n(to + g * z.width(), z.width(), static_cast<float>(of_group(g * z.width())));
  }
}

double GroupSum(const NormSize& z, const double* sums, std::int64_t first) {
  double sum = 0;
  for (std::int64_t c = first; c < first + z.width(); ++c) sum += sums[c];
  return sum;
}

// Scratch: sums f64 [C], then block, mean and factor f32 [C].
void Forward(const Call& c, const NormSize& z, float eps) {
  auto* const sums = static_cast<double*>(c.scratch);
  auto* const block = reinterpret_cast<float*>(sums + z.channels);
  float* const mean = block + z.channels;
  float* const factor = mean + z.channels;
  const auto* gamma = c.in<float>(1);
  for (std::int64_t n = 0; n < z.samples; ++n) {
    const float* x = c.in<float>(0) + n * z.sample();
    // Of differences from a value of the group, which are exactly 0 if all values are equal.
    ForGroups(
        z, [x](std::int64_t first) { return x[first]; }, mean);
    std::fill_n(sums, z.channels, 0.0);
    AddDifferences(z, x, mean, block, sums);
    ForGroups(
        z,
        [&](std::int64_t first) {
          return static_cast<double>(mean[first]) + GroupSum(z, sums, first) / z.count();
        },
        mean);
    std::fill_n(sums, z.channels, 0.0);
    AddSquares(z, x, mean, block, sums);
    ForGroups(
        z,
        [&](std::int64_t first) {
          return 1 / std::sqrt(GroupSum(z, sums, first) / z.count() + static_cast<double>(eps));
        },
        factor);
    for (std::int64_t g = 0; g < z.groups; ++g) {
      c.out<float>(1)[n * z.groups + g] = mean[g * z.width()];
      c.out<float>(2)[n * z.groups + g] = factor[g * z.width()];
    }
    for (std::int64_t d = 0; d < z.channels; ++d) factor[d] *= gamma[d];
    Normalize(z, x, mean, factor, c.in<float>(2), c.out<float>(0) + n * z.sample());
  }
}

// Scratch: f64 [4, C], the sums of dy and of dy h of a sample and of all; then f32 [5, C].
constexpr std::size_t kGradientBytes = 4 * sizeof(double) + 5 * sizeof(float);  // per channel

void Backward(const Call& c, const NormSize& z) {
  auto* const sums = static_cast<double*>(c.scratch);
  double* const products = sums + z.channels;
  double* const of_all = products + z.channels;  // totals of both
  auto* const block = reinterpret_cast<float*>(of_all + 2 * z.channels);
  const ChannelTerms t{block + z.channels, block + 2 * z.channels, block + 3 * z.channels,
                       block + 4 * z.channels};
  const auto* gamma = c.in<float>(2);
  std::fill_n(of_all, 2 * z.channels, 0.0);
  for (std::int64_t n = 0; n < z.samples; ++n) {
    const float* dy = c.in<float>(0) + n * z.sample();
    const float* x = c.in<float>(1) + n * z.sample();
    const std::int64_t row = n * z.groups;
    ForGroups(
        z, [&](std::int64_t d) { return c.in<float>(3)[row + d / z.width()]; }, t.mean);
    ForGroups(
        z, [&](std::int64_t d) { return c.in<float>(4)[row + d / z.width()]; }, t.rstd);
    std::fill_n(sums, 2 * z.channels, 0.0);
    AddValues(z, dy, block, sums);
    AddProducts(z, dy, x, t.mean, t.rstd, block, products);
    for (std::int64_t d = 0; d < 2 * z.channels; ++d) {
      of_all[d] += sums[d];
      sums[d] *= static_cast<double>(gamma[d % z.channels]);
    }
    ForGroups(
        z, [&](std::int64_t d) { return GroupSum(z, sums, d) / z.count(); }, t.mean_d);
    ForGroups(
        z, [&](std::int64_t d) { return GroupSum(z, products, d) / z.count(); }, t.mean_dh);
    InputGradient(z, dy, x, gamma, t, c.out<float>(0) + n * z.sample());
  }
  for (std::int64_t d = 0; d < z.channels; ++d) {
    const auto of_beta = static_cast<float>(of_all[d]);
    const auto of_gamma = static_cast<float>(of_all[z.channels + d]);
    c.out<float>(1)[d] = (c.add[1] ? c.out<float>(1)[d] : 0.0F) + of_gamma;
    c.out<float>(2)[d] = (c.add[2] ? c.out<float>(2)[d] : 0.0F) + of_beta;
  }
}

NormSize MakeNormSize(const ValueSpec& x, const ValueSpec& mean) {
  return {x.shape[0], x.shape[1] * x.shape[2], x.shape[3], mean.shape[1]};
}

}  // namespace

KernelResult MakeGroupNormCpu(const KernelRequest& request) {
  const float eps = static_cast<const GroupNorm&>(request.function).eps();
  const NormSize size = MakeNormSize(request.inputs[0], request.outputs[1]);
  return MakeCall(
      request,
      [=](const Call& c) {
        Forward(c, size, eps);
        return Status::Ok();
      },
      static_cast<std::size_t>(size.channels) * (sizeof(double) + 3 * sizeof(float)));
}

KernelResult MakeGroupNormGradientCpu(const KernelRequest& request) {
  const NormSize size = MakeNormSize(request.inputs[1], request.inputs[3]);
  return MakeCall(
      request,
      [size](const Call& c) {
        Backward(c, size);
        return Status::Ok();
      },
      static_cast<std::size_t>(size.channels) * kGradientBytes);
}

}  // namespace gaccd
