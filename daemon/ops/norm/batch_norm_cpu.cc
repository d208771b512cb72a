#include <algorithm>
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/ops/norm/batch_norm_loops_cpu.h"

namespace gaccd {
namespace {

using namespace batch_norm;  // NOLINT: loops of one function in two files
using Call = CallKernel::Call;

// Moments of one channel, from the sums.
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

// The rows of a micro-batch in one group.
struct Part {
  std::int64_t group = 0;
  std::int64_t first = 0;  // element of x
  Rows size;
  bool later = false;  // not the first part of this call

  // Sums of the part's group in an array of groups.
  [[nodiscard]] auto* sums(auto* all) const { return all + group * (2 * size.channels + 1); }
  [[nodiscard]] auto* gradient_sums(auto* all) const { return all + group * 2 * size.channels; }
};

// Calls run(part) for each part, in order. position: index of the first sample, used with runs.
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
  const std::int64_t rows = size.rows / runs.samples;  // per sample
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

// Options for all parts.
struct PartOptions {
  double eps = 0;
  NormEnd end = {};
  std::size_t gradient_sums = 0;  // index of the input; 0: none
};

// Sums of groups without a part are 0.
void SumPart(const Call& c, const Part& part, const PartOptions& /*options*/) {
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

// Adds if `later`, otherwise overwrites.
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

// Computes mean, scale and, if beta is not null, shift.
Factors NormFactors(const Call& c, const Part& part, double eps, const double* sums,
                    const float* gamma, const float* beta) {
  const Factors f(c.scratch, part.size.channels);
  for (std::int64_t i = 0; i < part.size.channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, part.size, i, eps);
    const double factor = moments.rstd * gamma[i];
    f.mean[i] = static_cast<float>(moments.mean);
    f.scale[i] = static_cast<float>(factor);
    if (beta == nullptr) continue;
    f.shift[i] = static_cast<float>(beta[i] + (f.mean[i] - moments.mean) * factor);
  }
  return f;
}

void NormPart(const Call& c, const Part& part, const PartOptions& options) {
  const auto* const sums = part.sums(c.in<double>(1));
  const Factors f = NormFactors(c, part, options.eps, sums, c.in<float>(2), c.in<float>(3));
  const float* const x = c.in<float>(0) + part.first;
  const float* const residual = options.end.adds ? c.in<float>(4) + part.first : nullptr;
  if (options.end.to_bf16) {
    Normalize(x, residual, part.size, f, options.end.relu, c.out<Bf16>(0) + part.first);
  } else {
    Normalize(x, residual, part.size, f, options.end.relu, c.out<float>(0) + part.first);
  }
}

void GradientSumsPart(const Call& c, const Part& part, const PartOptions& options) {
  const std::int64_t channels = part.size.channels;
  const auto* const sums = part.sums(c.in<double>(2));
  auto* const found = part.gradient_sums(c.out<double>(0));
  const bool relu = options.end.relu;
  const Factors f = relu ? NormFactors(c, part, options.eps, sums, c.in<float>(3), c.in<float>(4))
                         : Factors(c.scratch, channels);
  for (std::int64_t i = 0; i < channels && !relu; ++i) {
    f.mean[i] = static_cast<float>(ComputeMoments(sums, part.size, i, options.eps).mean);
  }
  SumGradients(c.in<float>(0) + part.first, c.in<float>(1) + part.first, part.size, f, relu, found);
  for (std::int64_t i = 0; i < channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, part.size, i, options.eps);
    double& dgamma = found[channels + i];
    dgamma = (dgamma + (f.mean[i] - moments.mean) * found[i]) * moments.rstd;
    Put(c, 1, i, dgamma, part.later);
    Put(c, 2, i, found[i], part.later);
  }
}

void InputGradientPart(const Call& c, const Part& part, const PartOptions& options) {
  const std::int64_t channels = part.size.channels;
  const bool relu = options.end.relu;
  const auto* const sums = part.sums(c.in<double>(2));
  const auto* const gradient_sums =
      options.gradient_sums > 0 ? part.gradient_sums(c.in<double>(options.gradient_sums)) : nullptr;
  const Factors f =
      NormFactors(c, part, options.eps, sums, c.in<float>(3), relu ? c.in<float>(4) : nullptr);
  const double n = sums[2 * channels];
  for (std::int64_t i = 0; i < channels; ++i) {
    const ChannelMoments moments = ComputeMoments(sums, part.size, i, options.eps);
    const double factor = moments.rstd * c.in<float>(3)[i];
    const double db = gradient_sums != nullptr ? gradient_sums[i] : 0;
    const double dg = gradient_sums != nullptr ? gradient_sums[channels + i] : 0;
    const double missing = f.mean[i] - moments.mean;
    f.slope[i] = static_cast<float>(factor * moments.rstd * dg / n);
    f.offset[i] = static_cast<float>(factor * (db + missing * moments.rstd * dg) / n);
  }
  const float* const dy = c.in<float>(0) + part.first;
  const float* const x = c.in<float>(1) + part.first;
  if (options.end.to_bf16) {
    InputGradients(dy, x, part.size, f, relu, c.out<Bf16>(0) + part.first);
  } else {
    InputGradients(dy, x, part.size, f, relu, c.out<float>(0) + part.first);
  }
}

Rows ToRows(const ValueSpec& x) {
  const std::int64_t channels = x.shape.back();
  return {Elements(x.shape) / channels, channels};
}

using RunPart = void(const Call& c, const Part& part, const PartOptions& options);

// A kernel that calls `run` once for each part. x: index of the input.
KernelResult MakeParts(const KernelRequest& request, std::size_t x, const NormRuns& runs,
                       RunPart* run, const PartOptions& options = {}) {
  const Rows size = ToRows(request.inputs[x]);
  const bool adds_sums = request.outputs[0].dtype == DType::kF64;
  const std::int64_t sums = adds_sums ? Elements(request.outputs[0].shape) : 0;
  const auto scratch = static_cast<std::size_t>(size.channels * Factors::kCount) * sizeof(float);
  return MakeCall(
      request,
      [=](const Call& c) {
        if (sums > 0) std::fill_n(c.out<double>(0), sums, 0.0);
        const std::int64_t position = runs.size > 0 ? *c.in<std::int64_t>(c.inputs.size() - 1) : 0;
        return ForEachPart(size, runs, position, [&](const Part& part) { run(c, part, options); });
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
    return MakeParts(request, 0, norm->runs(), &NormPart,
                     {.eps = double{norm->eps()}, .end = norm->end()});
  }
  if (const auto* sums = dynamic_cast<const BatchNormGradientSums*>(&function)) {
    return MakeParts(request, 1, sums->runs(), &GradientSumsPart,
                     {.eps = double{sums->eps()}, .end = {.relu = sums->relu()}});
  }
  if (const auto* gradient = dynamic_cast<const BatchNormInputGradient*>(&function)) {
    const bool to_bf16 = request.outputs[0].dtype == DType::kBF16;
    return MakeParts(request, 1, gradient->runs(), &InputGradientPart,
                     {.eps = double{gradient->eps()},
                      .end = {.relu = gradient->relu(), .to_bf16 = to_bf16},
                      .gradient_sums = gradient->gradient_sums(request.inputs.size())});
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
