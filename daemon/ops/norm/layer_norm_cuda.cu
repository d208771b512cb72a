// Layer norm and RMS norm: one warp per row. The part of the row that fits into registers is read
// once; the rest is read again from the cache for every sum.
#include <cstddef>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Vectors of a row per lane in registers; the smaller number is used if it is sufficient, as it
// allows more warps. In 16 bits they hold rows of 1024 and 4096 columns.
constexpr int kFewVectors = 4;
constexpr int kManyVectors = 16;
constexpr int kSingleValues = 8;

// If residual is not null, the norm of x + residual, which is written to `sum`; that may alias x or
// residual. means null: RMS norm, without mean and beta.
template <typename T>
struct NormRows {
  const T* x;
  const T* residual;
  T* sum;
  const float* gamma;
  const float* beta;
  std::int64_t rows, columns;
  float eps;
  T* y;
  float* means;
  float* rstds;
};

// x + residual, rounded as stored.
template <typename T, int kWidth>
__device__ inline Raw<T, kWidth> RoundedSum(const T* x, const T* residual) {
  float values[kWidth];
  float added[kWidth];
  Load<Use::kStream>(x, values);
  Load<Use::kStream>(residual, added);
#pragma unroll
  for (int v = 0; v < kWidth; ++v) values[v] += added[v];
  return Pack<T, kWidth>(values);
}

template <typename T, int kWidth>
__device__ inline void AddTo(float& sum, const Raw<T, kWidth>& raw) {
  float values[kWidth];
  Unpack(raw, values);
#pragma unroll
  for (int v = 0; v < kWidth; ++v) sum += values[v];
}
struct Differences {
  float sum = 0;
  float squares = 0;
};
template <typename T, int kWidth>
__device__ inline void AddDifferences(Differences& to, const Raw<T, kWidth>& raw, float mean) {
  float values[kWidth];
  Unpack(raw, values);
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    const float difference = values[v] - mean;
    to.sum += difference;
    to.squares += difference * difference;
  }
}
template <typename T, int kWidth>
__device__ inline void WriteNorm(const NormRows<T>& in, const Raw<T, kWidth>& raw, float mean,
                                 float rstd, std::int64_t column, T* to) {
  float values[kWidth];
  float factors[kWidth];
  Unpack(raw, values);
  Load<Use::kAgain>(in.gamma + column, factors);
#pragma unroll
  for (int v = 0; v < kWidth; ++v) values[v] = (values[v] - mean) * rstd * factors[v];
  if (in.means != nullptr) {
    Load<Use::kAgain>(in.beta + column, factors);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) values[v] += factors[v];
  }
  Store<Use::kAgain>(to, values);
}

template <typename T, int kWidth, int kCached>
__global__ void __launch_bounds__(kThreads, kCached == kManyVectors ? 2 : 4)
    LayerNormKernel(NormRows<T> in) {
  constexpr std::int64_t kStep = std::int64_t{kWarp} * kWidth;
  const unsigned lane = threadIdx.x % kWarp;
  const std::int64_t mine = std::int64_t{lane} * kWidth;
  const std::int64_t beyond = mine + kCached * kStep;
  const auto count = static_cast<float>(in.columns);
  const bool adds = in.residual != nullptr;
  std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  for (; n < in.rows; n += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const std::int64_t at = n * in.columns;
    const T* row = (adds ? in.sum : in.x) + at;
    Raw<T, kWidth> cached[kCached];
#pragma unroll
    for (int j = 0; j < kCached; ++j) {
      const std::int64_t d = mine + j * kStep;
      if (d >= in.columns) continue;
      cached[j] = adds ? RoundedSum<T, kWidth>(in.x + at + d, in.residual + at + d)
                       : LoadRaw<kWidth, Use::kStream>(in.x + at + d);
    }
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kCached; ++j) {
      const std::int64_t d = mine + j * kStep;
      if (d >= in.columns) continue;
      if (adds) StoreRaw<Use::kAgain>(in.sum + at + d, cached[j]);
      AddTo(sum, cached[j]);
    }
    for (std::int64_t d = beyond; d < in.columns; d += kStep) {
      if (adds) {
        StoreRaw<Use::kAgain>(in.sum + at + d,
                              RoundedSum<T, kWidth>(in.x + at + d, in.residual + at + d));
      }
      AddTo(sum, LoadRaw<kWidth, Use::kAgain>(row + d));
    }
    float mean = in.means != nullptr ? WarpSum(sum) / count : 0;
    Differences from_mean;
#pragma unroll
    for (int j = 0; j < kCached; ++j) {
      if (mine + j * kStep < in.columns) AddDifferences(from_mean, cached[j], mean);
    }
    for (std::int64_t d = beyond; d < in.columns; d += kStep) {
      AddDifferences(from_mean, LoadRaw<kWidth, Use::kAgain>(row + d), mean);
    }
    // The rounding error of a large mean: equal values are exactly 0 from it.
    const float error = in.means != nullptr ? WarpSum(from_mean.sum) / count : 0;
    mean += error;
    const float variance = WarpSum(from_mean.squares) / count - error * error;
    // Not fmaxf(), which takes 0 for a NaN.
    const float rstd = 1.0F / sqrtf((variance < 0 ? 0.0F : variance) + in.eps);
#pragma unroll
    for (int j = 0; j < kCached; ++j) {
      const std::int64_t d = mine + j * kStep;
      if (d < in.columns) WriteNorm(in, cached[j], mean, rstd, d, in.y + at + d);
    }
    for (std::int64_t d = beyond; d < in.columns; d += kStep) {
      WriteNorm(in, LoadRaw<kWidth, Use::kAgain>(row + d), mean, rstd, d, in.y + at + d);
    }
    if (lane == 0) {
      if (in.means != nullptr) in.means[n] = mean;
      in.rstds[n] = rstd;
    }
  }
}

template <typename T>
Status LaunchNorms(const KernelStream& on, const NormRows<T>& in, const char* what) {
  constexpr int kVector = kVectorWidth<T>;
  const bool vectors = IsVectorAligned(in.x) && IsVectorAligned(in.residual) &&
                       IsVectorAligned(in.sum) && IsVectorAligned(in.gamma) &&
                       IsVectorAligned(in.beta) && IsVectorAligned(in.y) &&
                       in.columns % kVector == 0;
  const bool few = in.columns <= std::int64_t{kFewVectors} * kVector * kWarp;
  auto* const kernel = !vectors ? LayerNormKernel<T, 1, kSingleValues>
                       : few    ? LayerNormKernel<T, kVector, kFewVectors>
                                : LayerNormKernel<T, kVector, kManyVectors>;
  return Launch(kernel, {on.Blocks(in.rows, kWarps), kThreads}, on.stream, what, in);
}

// adds: the second input is added to the first one, and the first output is their sum.
KernelResult MakeNorm(const CudaRequest& request, float eps, bool adds) {
  return MakeTypedCall(request, [=, on = request.on, size = request.size()](auto t, const Call& c) {
    using T = decltype(t);
    const std::size_t i = adds ? 1 : 0;
    const NormRows<T> in{.x = c.in<T>(0),
                         .residual = adds ? c.in<T>(1) : nullptr,
                         .sum = adds ? c.out<T>(0) : nullptr,
                         .gamma = c.in<float>(i + 1),
                         .beta = c.in<float>(i + 2),
                         .rows = size.rows,
                         .columns = size.columns,
                         .eps = eps,
                         .y = c.out<T>(i),
                         .means = c.out<float>(i + 1),
                         .rstds = c.out<float>(i + 2)};
    return LaunchNorms(on, in, adds ? "add_layer_norm" : "layer_norm");
  });
}

}  // namespace

KernelResult MakeLayerNormCuda(const CudaRequest& request) {
  return MakeNorm(request, static_cast<const LayerNorm&>(request.function).eps(), false);
}
KernelResult MakeAddLayerNormCuda(const CudaRequest& request) {
  return MakeNorm(request, static_cast<const AddLayerNorm&>(request.function).eps(), true);
}

KernelResult MakeRmsNormCuda(const CudaRequest& request) {
  const float eps = static_cast<const RmsNorm&>(request.function).eps();
  return MakeTypedCall(request, [=, on = request.on, size = request.size()](auto t, const Call& c) {
    using T = decltype(t);
    const NormRows<T> in{.x = c.in<T>(0),
                         .residual = nullptr,
                         .sum = nullptr,
                         .gamma = c.in<float>(1),
                         .beta = nullptr,
                         .rows = size.rows,
                         .columns = size.columns,
                         .eps = eps,
                         .y = c.out<T>(0),
                         .means = nullptr,
                         .rstds = c.out<float>(1)};
    return LaunchNorms(on, in, "rms_norm");
  });
}

}  // namespace gaccd
