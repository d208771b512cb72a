// Batch norms and the gradients of their inputs, from the sums: every value by itself.
#include <cmath>

#include "daemon/ops/norm/batch_norm_parts_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using namespace batch_norm;  // NOLINT: kernels of one function in two files
using Call = CallKernel::Call;

// What a value is computed with, by part and channel: f32 [parts, 4, channels].
//   y = (x - mean) scale + shift            slope: none
//   dx = dy scale - (x - mean) slope - shift
// The mean is rounded to f32; what is missing of it, as it may be many deviations, is in the shift.
// beta: of y; gradient_sums: of dx, null where the statistics are fixed. A part of no group: NaN.
__global__ void __launch_bounds__(kThreads)
    FactorsKernel(const double* sums, const float* gamma, const float* beta,
                  const double* gradient_sums, const std::int64_t* position, NormSize z, double eps,
                  float* factors) {
  const std::int64_t channel = Thread() % z.channels;
  const std::int64_t p = Thread() / z.channels;
  if (p >= z.parts()) return;
  const Part part = z.At(p, position);
  float* to = factors + p * 4 * z.channels + channel;
  if (part.rows == 0) return;
  if (part.group < 0) {
    for (int i = 0; i < 4; ++i) to[i * z.channels] = NAN;
    return;
  }
  const double* group = SumsOf(sums, part, z.channels);
  const Moments moments = MomentsOf(group, z.channels, channel, eps);
  const double factor = moments.rstd * static_cast<double>(gamma[channel]);
  const auto mean = static_cast<float>(moments.mean);
  const double missing = static_cast<double>(mean) - moments.mean;
  to[0] = mean;
  to[z.channels] = static_cast<float>(factor);
  if (beta != nullptr) {
    to[3 * z.channels] = static_cast<float>(static_cast<double>(beta[channel]) + missing * factor);
    return;
  }
  double db = 0;
  double dg = 0;
  if (gradient_sums != nullptr) {
    db = gradient_sums[part.group * 2 * z.channels + channel];
    dg = gradient_sums[(part.group * 2 + 1) * z.channels + channel];
  }
  const double n = group[2 * z.channels];
  to[2 * z.channels] = static_cast<float>(factor * moments.rstd * dg / n);
  to[3 * z.channels] = static_cast<float>(factor * (db + missing * moments.rstd * dg) / n);
}

// dy null: y from x; else dx. `to` may be x or dy. A thread takes kWidth channels of a row at a
// time.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    NormKernel(const T* x, const T* dy, const float* factors, const std::int64_t* position,
               NormSize z, T* to) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = Thread() * kWidth; i < z.rows * z.channels; i += threads * kWidth) {
    const std::int64_t row = i / z.channels;
    const float* f = factors + z.PartOf(row, position) * 4 * z.channels + (i - row * z.channels);
    float value[kWidth];
    float slope[kWidth];
    Load<Use::kAgain>(x + i, value);
    if (dy != nullptr) Load<Use::kAgain>(dy + i, slope);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      const float centred = value[v] - f[v];
      const float scale = f[z.channels + v];
      const float shift = f[3 * z.channels + v];
      value[v] = dy == nullptr ? centred * scale + shift
                               : slope[v] * scale - centred * f[2 * z.channels + v] - shift;
    }
    Store<Use::kAgain>(to + i, value);
  }
}

// Rows are whole vectors, or values are taken one by one.
template <typename T>
Status LaunchNorm(const KernelStream& on, const NormSize& z, const char* what, const T* x,
                  const T* dy, const float* factors, const std::int64_t* position, T* to) {
  constexpr int kVector = kVectorWidth<T>;
  const bool vectors =
      z.channels % kVector == 0 && IsVectorAligned(x) && IsVectorAligned(dy) && IsVectorAligned(to);
  const std::int64_t of_block = vectors ? kThreads * kVector : kThreads;
  return Launch(vectors ? NormKernel<T, kVector> : NormKernel<T, 1>,
                {on.Blocks(z.rows * z.channels, of_block), kThreads}, on.stream, what, x, dy,
                factors, position, z, to);
}

std::size_t FactorBytes(const NormSize& z) {
  return static_cast<std::size_t>(z.parts() * 4 * z.channels) * sizeof(float);
}

}  // namespace

KernelResult MakeBatchNormCuda(const CudaRequest& request) {
  const auto& function = static_cast<const BatchNorm&>(request.function);
  const NormSize z = SizeOf(request.inputs[0], function.runs());
  const double eps = double{function.eps()};
  return MakeTypedCall(
      request,
      [=, on = request.on](auto t, const Call& c) {
        using T = decltype(t);
        auto* const factors = static_cast<float*>(c.scratch);
        GACCD_RETURN_IF_ERROR(Launch(FactorsKernel, ShapeFor(z.parts() * z.channels), on.stream,
                                     "batch_norm", c.in<double>(1), c.in<float>(2), c.in<float>(3),
                                     nullptr, PositionOf(c, z), z, eps, factors));
        return LaunchNorm<T>(on, z, "batch_norm", c.in<T>(0), nullptr, factors, PositionOf(c, z),
                             c.out<T>(0));
      },
      FactorBytes(z));
}

KernelResult MakeBatchNormInputGradientCuda(const CudaRequest& request) {
  const auto& function = static_cast<const BatchNormInputGradient&>(request.function);
  const NormSize z = SizeOf(request.inputs[1], function.runs());
  const double eps = double{function.eps()};
  const std::size_t without_position = request.inputs.size() - (z.runs.size > 0 ? 1 : 0);
  const bool of_group = without_position > 4;
  return MakeTypedCall(
      request,
      [=, on = request.on](auto t, const Call& c) {
        using T = decltype(t);
        auto* const factors = static_cast<float*>(c.scratch);
        GACCD_RETURN_IF_ERROR(Launch(FactorsKernel, ShapeFor(z.parts() * z.channels), on.stream,
                                     "batch_norm_input_gradient", c.in<double>(2), c.in<float>(3),
                                     nullptr, of_group ? c.in<double>(4) : nullptr,
                                     PositionOf(c, z), z, eps, factors));
        return LaunchNorm<T>(on, z, "batch_norm_input_gradient", c.in<T>(1), c.in<T>(0), factors,
                             PositionOf(c, z), c.out<T>(0));
      },
      FactorBytes(z));
}

}  // namespace gaccd
