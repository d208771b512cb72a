#include <algorithm>
#include <cmath>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/norm/batch_norm.h"

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

// What a micro-batch has of one group.
struct Part {
  std::int64_t group = 0;
  std::int64_t first = 0;  // element of x
  Rows size;
  bool later = false;  // not the first part

  // Of its group, in a vector of them.
  [[nodiscard]] auto* sums(auto* all) const { return all + group * (2 * size.channels + 1); }
  [[nodiscard]] auto* gradient_sums(auto* all) const { return all + group * 2 * size.channels; }
};

// Calls run(part) for each, in their order. position: of the first sample, where there are runs.
Status ForEachPart(Rows size, const NormRuns& runs, std::int64_t position, auto&& run) {
  if (runs.size == 0) {
    run(Part{.size = size});
    return Status::Ok();
  }
  if (position < 0 || (position + runs.samples - 1) / runs.size >= runs.count) {
    return {ErrorKind::kInternal,
            StrCat("batch_norm: expected ", runs.samples, " samples within ", runs.count,
                   " runs of ", runs.size, ", found them from position ", position, " on")};
  }
  const std::int64_t rows = size.rows / runs.samples;  // of one
  for (std::int64_t sample = 0; sample < runs.samples;) {
    const std::int64_t group = (position + sample) / runs.size;
    const std::int64_t end = std::min((group + 1) * runs.size - position, runs.samples);
    run(Part{.group = group,
             .first = sample * rows * size.channels,
             .size = {(end - sample) * rows, size.channels},
             .later = sample > 0});
    sample = end;
  }
  return Status::Ok();
}

// The sums of groups without a part are 0.
void SumPart(const Call& c, const Part& part, double /*eps*/) {
  auto* const sums = part.sums(c.out<double>(0));
  SumChannels(c.in<float>(0) + part.first, part.size, sums);
  sums[2 * part.size.channels] = static_cast<double>(part.size.rows);
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
void Put(const Call& c, std::size_t output, std::int64_t i, double value, bool later = false) {
  float& to = c.out<float>(output)[i];
  to = static_cast<float>((later || c.add[output] ? to : 0.0) + value);
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
void NormPart(const Call& c, const Part& part, double eps) {
  const std::int64_t channels = part.size.channels;
  auto* const mean = static_cast<float*>(c.scratch);
  float* const scale = mean + channels;
  float* const shift = scale + channels;
  const auto* const sums = part.sums(c.in<double>(1));
  for (std::int64_t i = 0; i < channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, part.size, i, eps);
    const double factor = moments.rstd * c.in<float>(2)[i];
    mean[i] = static_cast<float>(moments.mean);
    scale[i] = static_cast<float>(factor);
    shift[i] = static_cast<float>(c.in<float>(3)[i] + (mean[i] - moments.mean) * factor);
  }
  ScaleChannels(c.in<float>(0) + part.first, part.size, mean, scale, shift,
                c.out<float>(0) + part.first);
}

void GradientSumsPart(const Call& c, const Part& part, double eps) {
  const std::int64_t channels = part.size.channels;
  auto* const mean = static_cast<float*>(c.scratch);
  const auto* const sums = part.sums(c.in<double>(2));
  auto* const found = part.gradient_sums(c.out<double>(0));
  for (std::int64_t i = 0; i < channels; ++i) {
    mean[i] = static_cast<float>(ComputeMoments(sums, part.size, i, eps).mean);
  }
  SumGradients(c.in<float>(0) + part.first, c.in<float>(1) + part.first, part.size, mean, found);
  for (std::int64_t i = 0; i < channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, part.size, i, eps);
    double& dgamma = found[channels + i];
    dgamma = (dgamma + (mean[i] - moments.mean) * found[i]) * moments.rstd;
    Put(c, 1, i, dgamma, part.later);
    Put(c, 2, i, found[i], part.later);
  }
}

void InputGradientPart(const Call& c, const Part& part, double eps, bool of_group) {
  const std::int64_t channels = part.size.channels;
  auto* const mean = static_cast<float*>(c.scratch);
  float* const scale = mean + channels;
  float* const slope = scale + channels;
  float* const offset = slope + channels;
  const auto* const sums = part.sums(c.in<double>(2));
  const auto* const gradient_sums = of_group ? part.gradient_sums(c.in<double>(4)) : nullptr;
  const double n = sums[2 * channels];
  for (std::int64_t i = 0; i < channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, part.size, i, eps);
    const double factor = moments.rstd * c.in<float>(3)[i];
    const double db = of_group ? gradient_sums[i] : 0;
    const double dg = of_group ? gradient_sums[channels + i] : 0;
    mean[i] = static_cast<float>(moments.mean);
    scale[i] = static_cast<float>(factor);
    slope[i] = static_cast<float>(factor * moments.rstd * dg / n);
    const double missing = mean[i] - moments.mean;
    offset[i] = static_cast<float>(factor * (db + missing * moments.rstd * dg) / n);
  }
  InputGradients(c.in<float>(0) + part.first, c.in<float>(1) + part.first, part.size, mean, scale,
                 slope, offset, c.out<float>(0) + part.first);
}

void GroupGradientPart(const Call& c, const Part& part, double eps) {
  InputGradientPart(c, part, eps, true);
}
void FixedGradientPart(const Call& c, const Part& part, double eps) {
  InputGradientPart(c, part, eps, false);
}

Rows RowsOf(const ValueSpec& x) {
  const std::int64_t channels = x.shape.back();
  return {Elements(x.shape) / channels, channels};
}

using RunPart = void(const Call& c, const Part& part, double eps);

// A kernel of one call of `run` for each part. x: its place among the inputs.
KernelResult MakeParts(const KernelRequest& request, std::size_t x, const NormRuns& runs,
                       RunPart* run, double eps = 0) {
  const Rows size = RowsOf(request.inputs[x]);
  const bool adds_sums = request.outputs[0].dtype == DType::kF64;
  const std::int64_t sums = adds_sums ? Elements(request.outputs[0].shape) : 0;
  const auto scratch = static_cast<std::size_t>(size.channels) * 4 * sizeof(float);
  return MakeCall(
      request,
      [=](const Call& c) {
        if (sums > 0) std::fill_n(c.out<double>(0), sums, 0.0);
        const std::int64_t position = runs.size > 0 ? *c.in<std::int64_t>(c.inputs.size() - 1) : 0;
        return ForEachPart(size, runs, position, [&](const Part& part) { run(c, part, eps); });
      },
      scratch);
}

}  // namespace

KernelResult MakeBatchNormCpu(const KernelRequest& request) {
  const Function& function = request.function;
  if (const auto* sums = dynamic_cast<const ChannelSums*>(&function)) {
    return MakeParts(request, 0, sums->runs(), &SumPart);
  }
  if (const auto* norm = dynamic_cast<const BatchNorm*>(&function)) {
    return MakeParts(request, 0, norm->runs(), &NormPart, double{norm->eps()});
  }
  if (const auto* sums = dynamic_cast<const BatchNormGradientSums*>(&function)) {
    return MakeParts(request, 1, sums->runs(), &GradientSumsPart, double{sums->eps()});
  }
  if (const auto* gradient = dynamic_cast<const BatchNormInputGradient*>(&function)) {
    const bool of_group = request.inputs.size() > 4;
    return MakeParts(request, 1, gradient->runs(),
                     of_group ? &GroupGradientPart : &FixedGradientPart, double{gradient->eps()});
  }
  if (function.name() == "fixed_sums") {
    return MakeCall(request, [channels = request.inputs[0].shape[0]](const Call& c) {
      return RunFixedSums(c, channels);
    });
  }
  return MakeCall(request, [channels = request.outputs[0].shape[0]](const Call& c) {
    return RunMicroStatistics(c, channels);
  });
}

}  // namespace gaccd
