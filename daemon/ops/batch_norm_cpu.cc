#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"
#include "daemon/ops/batch_norm.h"
#include "daemon/ops/call_kernel.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct Rows {
  std::int64_t rows;
  std::int64_t channels;
};

// Of one channel, from the sums.
struct ChannelMoments {
  double mean;
  double rstd;
};
ChannelMoments ComputeMoments(const double* sums, Rows size, std::int64_t channel, double eps) {
  const double n = sums[2 * size.channels];
  const double mean = sums[channel] / n;
  const double variance = std::max(sums[size.channels + channel] / n - mean * mean, 0.0);
  return {mean, 1 / std::sqrt(variance + eps)};
}

// Rows whose values are added before their sum is added to that of all.
constexpr std::int64_t kRowsAtOnce = 4;

// sums[c] += sum of a(i), products[c] += sum of a(i) b(i), over the elements i of channel c.
template <typename A, typename B>
inline void AddSums(Rows size, const A& a, const B& b, double* sums, double* products) {
  const std::int64_t width = size.channels;
  std::int64_t n = 0;
  for (; n + kRowsAtOnce <= size.rows; n += kRowsAtOnce) {
    for (std::int64_t c = 0; c < width; ++c) {
      double sum = 0;
      double product = 0;
      for (std::int64_t row = n; row < n + kRowsAtOnce; ++row) {
        const double value = a(row * width + c);
        sum += value;
        product += value * b(row * width + c, c);
      }
      sums[c] += sum;
      products[c] += product;
    }
  }
  for (; n < size.rows; ++n) {
    for (std::int64_t c = 0; c < width; ++c) {
      const double value = a(n * width + c);
      sums[c] += value;
      products[c] += value * b(n * width + c, c);
    }
  }
}

GACCD_SIMD_CLONES
void SumChannels(const float* x, Rows size, double* sums) {
  AddSums(
      size, [x](std::int64_t i) { return static_cast<double>(x[i]); },
      [x](std::int64_t i, std::int64_t) { return static_cast<double>(x[i]); }, sums,
      sums + size.channels);
}

// Of dy, and of dy (x - mean).
GACCD_SIMD_CLONES
void SumGradients(const float* dy, const float* x, Rows size, const float* mean, double* sums) {
  AddSums(
      size, [dy](std::int64_t i) { return static_cast<double>(dy[i]); },
      [=](std::int64_t i, std::int64_t c) { return static_cast<double>(x[i] - mean[c]); }, sums,
      sums + size.channels);
}

// y = (x - mean[c]) scale[c] + shift[c]; y may be x.
GACCD_SIMD_CLONES
void ScaleChannels(const float* x, Rows size, const float* mean, const float* scale,
                   const float* shift, float* y) {
  for (std::int64_t n = 0; n < size.rows; ++n) {
    const float* const from = x + n * size.channels;
    float* const to = y + n * size.channels;
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < size.channels; ++c) {
      to[c] = (from[c] - mean[c]) * scale[c] + shift[c];
    }
  }
}

// dx = dy scale[c] - (x - mean[c]) slope[c] - offset[c]; dx may be dy.
GACCD_SIMD_CLONES
void InputGradients(const float* dy, const float* x, Rows size, const float* mean,
                    const float* scale, const float* slope, const float* offset, float* dx) {
  for (std::int64_t n = 0; n < size.rows; ++n) {
    const std::int64_t at = n * size.channels;
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t c = 0; c < size.channels; ++c) {
      dx[at + c] = dy[at + c] * scale[c] - (x[at + c] - mean[c]) * slope[c] - offset[c];
    }
  }
}

Status RunSums(const Call& c, Rows size) {
  auto* const sums = c.out<double>(0);
  std::fill_n(sums, 2 * size.channels, 0.0);
  SumChannels(c.in<float>(0), size, sums);
  sums[2 * size.channels] = static_cast<double>(size.rows);
  return Status::Ok();
}

Status RunFixedSums(const Call& c, std::int64_t channels) {
  auto* const sums = c.out<double>(0);
  for (std::int64_t i = 0; i < channels; ++i) {
    const double mean = c.in<float>(0)[i];
    sums[i] = mean;
    sums[channels + i] = c.in<float>(1)[i] + mean * mean;
  }
  sums[2 * channels] = 1;
  return Status::Ok();
}

// Adds, or overwrites.
void Put(const Call& c, std::size_t output, std::int64_t i, double value) {
  float& to = c.out<float>(output)[i];
  to = static_cast<float>((c.add[output] ? to : 0.0) + value);
}

Status RunMicroStatistics(const Call& c, std::int64_t channels) {
  const auto* const sums = c.in<double>(0);
  const double n = sums[2 * channels];
  for (std::int64_t i = 0; i < channels; ++i) {
    Put(c, 0, i, sums[i]);
    Put(c, 1, i, n > 0 ? n * UnbiasedVariance(sums[i], sums[channels + i], n) : 0);
  }
  Put(c, 2, 0, n);
  return Status::Ok();
}

// Scratch of these: up to 4 floats a channel, and 2 doubles. The loops take the mean in float32;
// what is missing of it, as it may be many deviations, goes into what they add.
Status RunNorm(const Call& c, Rows size, double eps) {
  auto* const mean = static_cast<float*>(c.scratch);
  float* const scale = mean + size.channels;
  float* const shift = scale + size.channels;
  for (std::int64_t i = 0; i < size.channels; ++i) {
    const ChannelMoments moments = ComputeMoments(c.in<double>(1), size, i, eps);
    const double factor = moments.rstd * c.in<float>(2)[i];
    mean[i] = static_cast<float>(moments.mean);
    scale[i] = static_cast<float>(factor);
    shift[i] = static_cast<float>(c.in<float>(3)[i] + (mean[i] - moments.mean) * factor);
  }
  ScaleChannels(c.in<float>(0), size, mean, scale, shift, c.out<float>(0));
  return Status::Ok();
}

Status RunGradientSums(const Call& c, Rows size, double eps) {
  auto* const mean = static_cast<float*>(c.scratch);
  const auto* const sums = c.in<double>(2);
  auto* const found = c.out<double>(0);
  for (std::int64_t i = 0; i < size.channels; ++i) {
    mean[i] = static_cast<float>(ComputeMoments(sums, size, i, eps).mean);
  }
  std::fill_n(found, 2 * size.channels, 0.0);
  SumGradients(c.in<float>(0), c.in<float>(1), size, mean, found);
  for (std::int64_t i = 0; i < size.channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, size, i, eps);
    double& dgamma = found[size.channels + i];
    dgamma = (dgamma + (mean[i] - moments.mean) * found[i]) * moments.rstd;
    Put(c, 1, i, found[size.channels + i]);
    Put(c, 2, i, found[i]);
  }
  return Status::Ok();
}

Status RunInputGradient(const Call& c, Rows size, double eps) {
  auto* const mean = static_cast<float*>(c.scratch);
  float* const scale = mean + size.channels;
  float* const slope = scale + size.channels;
  float* const offset = slope + size.channels;
  const auto* const sums = c.in<double>(2);
  const auto* const of_group = c.optional_in<double>(4);
  const double n = sums[2 * size.channels];
  for (std::int64_t i = 0; i < size.channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, size, i, eps);
    const double factor = moments.rstd * c.in<float>(3)[i];
    const double db = of_group != nullptr ? of_group[i] : 0;
    const double dg = of_group != nullptr ? of_group[size.channels + i] : 0;
    mean[i] = static_cast<float>(moments.mean);
    scale[i] = static_cast<float>(factor);
    slope[i] = static_cast<float>(factor * moments.rstd * dg / n);
    const double missing = mean[i] - moments.mean;
    offset[i] = static_cast<float>(factor * (db + missing * moments.rstd * dg) / n);
  }
  InputGradients(c.in<float>(0), c.in<float>(1), size, mean, scale, slope, offset, c.out<float>(0));
  return Status::Ok();
}

Rows RowsOf(const ValueSpec& x) {
  const std::int64_t channels = x.shape.back();
  return {Elements(x.shape) / channels, channels};
}

}  // namespace

KernelResult MakeBatchNormCpu(const KernelRequest& request) {
  const Function& function = request.function;
  if (function.name() == "channel_sums") {
    return MakeCall(request,
                    [size = RowsOf(request.inputs[0])](const Call& c) { return RunSums(c, size); });
  }
  if (function.name() == "fixed_sums") {
    return MakeCall(request, [channels = request.inputs[0].shape[0]](const Call& c) {
      return RunFixedSums(c, channels);
    });
  }
  if (function.name() == "micro_statistics") {
    return MakeCall(request, [channels = request.outputs[0].shape[0]](const Call& c) {
      return RunMicroStatistics(c, channels);
    });
  }
  const bool forward = function.name() == "batch_norm";
  const Rows size = RowsOf(request.inputs[forward ? 0 : 1]);
  const auto scratch = static_cast<std::size_t>(size.channels) * 4 * sizeof(float);
  const auto make = [&](auto* run, float eps) {
    return MakeCall(
        request, [size, run, eps](const Call& c) { return run(c, size, double{eps}); }, scratch);
  };
  if (forward) return make(&RunNorm, static_cast<const BatchNorm&>(function).eps());
  if (function.name() == "batch_norm_gradient_sums") {
    return make(&RunGradientSums, static_cast<const BatchNormGradientSums&>(function).eps());
  }
  return make(&RunInputGradient, static_cast<const BatchNormInputGradient&>(function).eps());
}

}  // namespace gaccd
