// Batch norms and their input gradients, from the sums; elementwise.
#include <algorithm>
#include <cmath>

#include "daemon/ops/norm/batch_norm_parts_cuda.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace batch_norm {
namespace {

// The mean is rounded to f32; the rounding error, which may be many deviations, is included in the
// shift. A part without a valid group: NaN.
__global__ void __launch_bounds__(kThreads)
    FactorsKernel(const double* sums, const float* gamma, const float* beta, bool of_gradient,
                  const double* gradient_sums, const std::int64_t* position, NormSize z, double eps,
                  float* factors) {
  const std::int64_t channel = GridIndex() % z.channels;
  const std::int64_t p = GridIndex() / z.channels;
  if (p >= z.parts()) return;
  const Part part = z.At(p, position);
  float* to = factors + p * kFactors * z.channels + channel;
  if (part.rows == 0) return;
  if (part.group < 0) {
    for (int i = 0; i < kFactors; ++i) to[i * z.channels] = NAN;
    return;
  }
  const double* group = PartGroupSums(sums, part, z.channels);
  const Moments moments = ComputeMoments(group, z.channels, channel, eps);
  const double factor =
      moments.rstd * (gamma != nullptr ? static_cast<double>(gamma[channel]) : 1.0);
  const auto mean = static_cast<float>(moments.mean);
  const double missing = static_cast<double>(mean) - moments.mean;
  to[kMean * z.channels] = mean;
  to[kScale * z.channels] = static_cast<float>(factor);
  if (beta != nullptr) {
    to[kShift * z.channels] =
        static_cast<float>(static_cast<double>(beta[channel]) + missing * factor);
  }
  if (!of_gradient) return;
  double db = 0;
  double dg = 0;
  if (gradient_sums != nullptr) {
    db = gradient_sums[part.group * 2 * z.channels + channel];
    dg = gradient_sums[(part.group * 2 + 1) * z.channels + channel];
  }
  const double n = group[2 * z.channels];
  to[kSlope * z.channels] = static_cast<float>(factor * moments.rstd * dg / n);
  to[kOffset * z.channels] = static_cast<float>(factor * (db + missing * moments.rstd * dg) / n);
}

}  // namespace

Status EnqueueFactors(const KernelStream& on, const NormSize& z, double eps, const double* sums,
                      const float* gamma, const float* beta, bool of_gradient,
                      const double* gradient_sums, const std::int64_t* position, float* factors) {
  return Launch(FactorsKernel, ShapeFor(z.parts() * z.channels), on.stream, "batch_norm", sums,
                gamma, beta, of_gradient, gradient_sums, position, z, eps, factors);
}

NormGrid GridFor(const KernelStream& on, const NormSize& z, int width) {
  constexpr std::int64_t kBlocksOfMultiprocessor = 4;
  constexpr std::int64_t kRowsOfThread = 4;
  constexpr std::int64_t kBlock = kThreads;
  NormGrid grid{.width = width};
  const std::int64_t vectors = z.channels / width;
  grid.tiles = (vectors + kBlock - 1) / kBlock;
  grid.lanes = static_cast<int>((vectors + grid.tiles - 1) / grid.tiles);
  const std::int64_t rows_of_part = (z.rows + z.parts() - 1) / z.parts();
  const std::int64_t most =
      std::max<std::int64_t>(1, rows_of_part / (grid.rows_at_once() * kRowsOfThread));
  const std::int64_t wanted =
      on.multiprocessors * kBlocksOfMultiprocessor / (grid.tiles * z.parts());
  grid.chunks = std::clamp<std::int64_t>(wanted, 1, most);
  return grid;
}

}  // namespace batch_norm

namespace {

using namespace batch_norm;  // NOLINT: kernels of one function in two files
using Call = CallKernel::Call;

// y may alias x.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    NormKernel(const T* x, const T* residual, const float* factors, const std::int64_t* position,
               NormSize z, NormGrid grid, bool relu, T* y) {
  const ThreadRows rows(z, grid, position);
  float mean[kWidth];
  float scale[kWidth];
  float shift[kWidth];
  LoadFactors(factors, kMean, z, rows, mean);
  LoadFactors(factors, kScale, z, rows, scale);
  LoadFactors(factors, kShift, z, rows, shift);
#pragma unroll 2
  for (std::int64_t row = rows.first; row < rows.end; row += rows.step) {
    const std::int64_t i = row * z.channels + rows.channel;
    float value[kWidth];
    float added[kWidth];
    Load<Use::kAgain>(x + i, value);
    if (residual != nullptr) Load<Use::kAgain>(residual + i, added);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      value[v] = Norm(value[v], mean[v], scale[v], shift[v]);
      if (residual != nullptr) value[v] += added[v];
      if (relu) value[v] = ReluFormula::Apply(value[v]);
    }
    Store<Use::kAgain>(y + i, value);
  }
}

// dx may alias x or dy. relu: dy counts as 0 where y <= 0.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    InputGradientKernel(const T* dy, const T* x, const float* factors, const std::int64_t* position,
                        NormSize z, NormGrid grid, bool relu, T* dx) {
  const ThreadRows rows(z, grid, position);
  float mean[kWidth];
  float scale[kWidth];
  float shift[kWidth];
  float slope[kWidth];
  float offset[kWidth];
  LoadFactors(factors, kMean, z, rows, mean);
  LoadFactors(factors, kScale, z, rows, scale);
  if (relu) LoadFactors(factors, kShift, z, rows, shift);
  LoadFactors(factors, kSlope, z, rows, slope);
  LoadFactors(factors, kOffset, z, rows, offset);
  for (std::int64_t row = rows.first; row < rows.end; row += rows.step) {
    const std::int64_t i = row * z.channels + rows.channel;
    float value[kWidth];
    float gradient[kWidth];
    Load<Use::kAgain>(x + i, value);
    Load<Use::kAgain>(dy + i, gradient);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      const float y = relu ? Norm(value[v], mean[v], scale[v], shift[v]) : 1.0F;
      gradient[v] = ReluGradientFormula::Apply(gradient[v], y) * scale[v] -
                    (value[v] - mean[v]) * slope[v] - offset[v];
    }
    Store<Use::kAgain>(dx + i, gradient);
  }
}

std::size_t FactorBytes(const NormSize& z) {
  return static_cast<std::size_t>(FactorElements(z)) * sizeof(float);
}

}  // namespace

KernelResult MakeBatchNormCuda(const CudaRequest& request) {
  const auto& function = static_cast<const BatchNorm&>(request.function);
  const NormSize z = MakeNormSize(request.inputs[0], function.runs());
  const double eps = double{function.eps()};
  return MakeTypedCall(
      request,
      [=, on = request.on, end = function.end()](auto t, const Call& c) {
        using T = decltype(t);
        const T* const x = c.in<T>(0);
        const T* const residual = end.adds ? c.in<T>(4) : nullptr;
        T* const y = c.out<T>(0);
        auto* const factors = static_cast<float*>(c.scratch);
        GACCD_RETURN_IF_ERROR(EnqueueFactors(on, z, eps, c.in<double>(1), c.in<float>(2),
                                             c.in<float>(3), false, nullptr, PositionInput(c, z),
                                             factors));
        const NormGrid grid = GridFor(on, z, WidthFor<T>(z, x, residual, y));
        return Launch(grid.width > 1 ? NormKernel<T, kVectorWidth<T>> : NormKernel<T, 1>,
                      grid.shape(z), on.stream, "batch_norm", x, residual, factors,
                      PositionInput(c, z), z, grid, end.relu, y);
      },
      FactorBytes(z));
}

KernelResult MakeBatchNormInputGradientCuda(const CudaRequest& request) {
  const auto& function = static_cast<const BatchNormInputGradient&>(request.function);
  const NormSize z = MakeNormSize(request.inputs[1], function.runs());
  const double eps = double{function.eps()};
  const std::size_t gradient_sums = function.gradient_sums(request.inputs.size());
  return MakeTypedCall(
      request,
      [=, on = request.on, relu = function.relu()](auto t, const Call& c) {
        using T = decltype(t);
        const T* const dy = c.in<T>(0);
        const T* const x = c.in<T>(1);
        T* const dx = c.out<T>(0);
        auto* const factors = static_cast<float*>(c.scratch);
        GACCD_RETURN_IF_ERROR(EnqueueFactors(
            on, z, eps, c.in<double>(2), c.in<float>(3), relu ? c.in<float>(4) : nullptr, true,
            gradient_sums > 0 ? c.in<double>(gradient_sums) : nullptr, PositionInput(c, z),
            factors));
        const NormGrid grid = GridFor(on, z, WidthFor<T>(z, dy, x, dx));
        return Launch(
            grid.width > 1 ? InputGradientKernel<T, kVectorWidth<T>> : InputGradientKernel<T, 1>,
            grid.shape(z), on.stream, "batch_norm_input_gradient", dy, x, factors,
            PositionInput(c, z), z, grid, relu, dx);
      },
      FactorBytes(z));
}

}  // namespace gaccd
