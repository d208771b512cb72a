// Kernel of batch_norm_sums_cuda.cu: a thread sums rows of its channels in f64, a block sums a
// chunk of the rows.
#pragma once

#include "daemon/ops/norm/batch_norm_parts_cuda.h"
#include "daemon/ops/pointwise/elementwise.h"

namespace gaccd::batch_norm {

// Rows that a thread loads before it adds them.
constexpr int kRowsInFlight = 4;

// Sums of a thread for each of its channels: x and x^2, or with kGradient dy and dy (x - mean).
// kRelu: dy counts as 0 where y <= 0.
template <typename T, int kWidth, bool kGradient, bool kRelu>
struct RowSums {
  float factors[kRelu ? 3 : 1][kWidth];  // mean, scale, shift
  double sum[kWidth] = {};
  double product[kWidth] = {};

  __device__ RowSums(const float* from, const NormSize& z, const ThreadRows& rows) {
    if constexpr (kGradient) LoadFactors(from, kMean, z, rows, factors[0]);
    if constexpr (kRelu) LoadFactors(from, kScale, z, rows, factors[1]);
    if constexpr (kRelu) LoadFactors(from, kShift, z, rows, factors[2]);
  }

  __device__ void Add(const Raw<T, kWidth>& x, const Raw<T, kWidth>& dy) {
    float value[kWidth];
    float gradient[kWidth];
    Unpack(x, value);
    if constexpr (kGradient) Unpack(dy, gradient);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      if constexpr (kGradient) {
        const float mean = factors[0][v];
        float passed = gradient[v];
        if constexpr (kRelu) {
          passed = ReluGradientFormula::Apply(passed,
                                              Norm(value[v], mean, factors[1][v], factors[2][v]));
        }
        const auto a = static_cast<double>(passed);
        sum[v] += a;
        product[v] += a * static_cast<double>(value[v] - mean);
      } else {
        const auto a = static_cast<double>(value[v]);
        sum[v] += a;
        product[v] += a * a;
      }
    }
  }
};

// partials [parts, chunks, 2, channels].
template <typename T, int kWidth, bool kGradient, bool kRelu>
__global__ void __launch_bounds__(kThreads)
    PartialSumsKernel(const T* x, const T* dy, const float* factors, const std::int64_t* position,
                      NormSize z, NormGrid grid, double* partials) {
  __shared__ double of_threads[2][kThreads * kWidth];
  const ThreadRows rows(z, grid, position);
  RowSums<T, kWidth, kGradient, kRelu> sums(factors, z, rows);
  const std::int64_t step = rows.step * z.channels;
  std::int64_t i = rows.first * z.channels + rows.channel;
  std::int64_t row = rows.first;
  for (; row + (kRowsInFlight - 1) * rows.step < rows.end; row += kRowsInFlight * rows.step) {
    Raw<T, kWidth> of_x[kRowsInFlight];
    Raw<T, kWidth> of_dy[kRowsInFlight];
#pragma unroll
    for (int k = 0; k < kRowsInFlight; ++k) {
      of_x[k] = LoadRaw<kWidth, Use::kAgain>(x + i + k * step);
      if constexpr (kGradient) of_dy[k] = LoadRaw<kWidth, Use::kAgain>(dy + i + k * step);
    }
#pragma unroll
    for (int k = 0; k < kRowsInFlight; ++k) sums.Add(of_x[k], of_dy[k]);
    i += kRowsInFlight * step;
  }
  for (; row < rows.end; row += rows.step, i += step) {
    Raw<T, kWidth> of_dy;
    if constexpr (kGradient) of_dy = LoadRaw<kWidth, Use::kAgain>(dy + i);
    sums.Add(LoadRaw<kWidth, Use::kAgain>(x + i), of_dy);
  }
  const int channels = grid.lanes * kWidth;  // per block
  const int place = static_cast<int>(threadIdx.x) * kWidth;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    of_threads[0][place + v] = sums.sum[v];
    of_threads[1][place + v] = sums.product[v];
  }
  __syncthreads();
  const std::int64_t first = blockIdx.x % grid.tiles * channels;
  for (int e = static_cast<int>(threadIdx.x); e < 2 * channels; e += kThreads) {
    const int which = e / channels;
    const std::int64_t channel = first + e % channels;
    if (channel >= z.channels) continue;
    double total = 0;
    for (int at = 0; at < grid.rows_at_once(); ++at) {
      total += of_threads[which][at * channels + e % channels];
    }
    partials[((rows.part * grid.chunks + rows.chunk) * 2 + which) * z.channels + channel] = total;
  }
}

}  // namespace gaccd::batch_norm
