// Shared by the batch norm kernels on the GPU: assignment of rows of a micro-batch to groups,
// moments of a group, and distribution of rows over blocks. For kernels only, see launch.h.
#pragma once

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd::batch_norm {

// The rows of a micro-batch in one group of samples. group < 0: not in a valid group, which is an
// error.
struct Part {
  std::int64_t group = 0;
  std::int64_t first = 0;  // row of x
  std::int64_t rows = 0;
};

struct NormSize {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  NormRuns runs = {};

  // Upper limit: with runs, the first and the last one may be partly in other micro-batches.
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t parts() const {
    return runs.size == 0 ? 1 : (runs.samples + runs.size - 2) / runs.size + 1;
  }
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t rows_of_sample() const {
    return rows / runs.samples;
  }
  // position: index of the first sample in the update; null without runs.
  [[nodiscard]] __device__ Part At(std::int64_t part, const std::int64_t* position) const {
    if (runs.size == 0) return {.rows = rows};
    const std::int64_t group = *position / runs.size + part;
    const std::int64_t begin = group * runs.size - *position;
    const std::int64_t first = begin < 0 ? 0 : begin;
    const std::int64_t end = begin + runs.size < runs.samples ? begin + runs.size : runs.samples;
    const bool is_known = *position >= 0 && group < runs.count;
    return {.group = is_known ? group : -1,
            .first = first * rows_of_sample(),
            .rows = end > first ? (end - first) * rows_of_sample() : 0};
  }
  [[nodiscard]] __device__ std::int64_t PartIndex(std::int64_t row,
                                                  const std::int64_t* position) const {
    if (runs.size == 0) return 0;
    return (*position + row / rows_of_sample()) / runs.size - *position / runs.size;
  }
};

struct Moments {
  double mean;
  double rstd;
};
__device__ inline Moments ComputeMoments(const double* sums, std::int64_t channels,
                                         std::int64_t channel, double eps) {
  const double n = sums[2 * channels];
  const double mean = sums[channel] / n;
  const double variance = sums[channels + channel] / n - mean * mean;
  return {mean, 1 / sqrt((variance < 0 ? 0 : variance) + eps)};
}
// Sums of a part's group; null: none.
__device__ inline const double* PartGroupSums(const double* all, const Part& part,
                                              std::int64_t channels) {
  return part.group < 0 ? nullptr : all + part.group * (2 * channels + 1);
}

// Factors of the formulas, by part and channel: f32 [parts, kFactors, channels].
//   y = (x - mean) scale + shift
//   dx = dy scale - (x - mean) slope - offset
enum Factor { kMean, kScale, kShift, kSlope, kOffset, kFactors };

// Distribution of values over blocks: a thread has the same `width` channels of many rows, a row
// has `lanes` threads, and a block has as many rows at a time as its threads allow.
struct NormGrid {
  int width = 1;
  int lanes = 1;
  std::int64_t tiles = 1;   // of channels
  std::int64_t chunks = 1;  // over the rows of a part

  [[nodiscard]] GACCD_HOST_DEVICE int rows_at_once() const {
    return static_cast<int>(kThreads) / lanes;
  }
  [[nodiscard]] LaunchShape shape(const NormSize& z) const {
    return {static_cast<unsigned>(tiles * chunks * z.parts()), kThreads};
  }
};

// Enough blocks for the GPU, each with some rows per thread.
[[nodiscard]] NormGrid GridFor(const KernelStream& on, const NormSize& z, int width);

// The rows of a thread: first, first + step.. before end; none if first is end.
struct ThreadRows {
  std::int64_t part, chunk, channel, first, end, step;

  __device__ ThreadRows(const NormSize& z, const NormGrid& grid, const std::int64_t* position)
      : part(blockIdx.x / grid.tiles / grid.chunks),
        chunk(blockIdx.x / grid.tiles % grid.chunks),
        channel((blockIdx.x % grid.tiles * grid.lanes + threadIdx.x % grid.lanes) * grid.width),
        step(grid.rows_at_once()) {
    const Part of = z.At(part, position);
    const int row = static_cast<int>(threadIdx.x) / grid.lanes;
    const bool idle = row >= grid.rows_at_once() || channel >= z.channels || of.rows == 0;
    first = of.first + of.rows * chunk / grid.chunks + row;
    end = idle ? first : of.first + of.rows * (chunk + 1) / grid.chunks;
  }
};

template <int kWidth>
__device__ inline void LoadFactors(const float* factors, Factor which, const NormSize& z,
                                   const ThreadRows& rows, float (&to)[kWidth]) {
  if (rows.first >= rows.end) return;
  const float* from = factors + (rows.part * kFactors + which) * z.channels + rows.channel;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) to[v] = from[v];
}

// y without residual and relu; bit-identical wherever it is recomputed.
__device__ inline float Norm(float x, float mean, float scale, float shift) {
  return fmaf(x - mean, scale, shift);
}

[[nodiscard]] inline std::int64_t FactorElements(const NormSize& z) {
  return z.parts() * kFactors * z.channels;
}
// gamma null: 1s. beta null: no shift. of_gradient: also slope and offset, from the sums of the
// group's gradients, which may be null.
Status EnqueueFactors(const KernelStream& on, const NormSize& z, double eps, const double* sums,
                      const float* gamma, const float* beta, bool of_gradient,
                      const double* gradient_sums, const std::int64_t* position, float* factors);

[[nodiscard]] inline NormSize MakeNormSize(const ValueSpec& x, const NormRuns& runs) {
  const std::int64_t channels = x.shape.back();
  return {.rows = Elements(x.shape) / channels, .channels = channels, .runs = runs};
}

[[nodiscard]] inline const std::int64_t* PositionInput(const CallKernel::Call& c,
                                                       const NormSize& z) {
  return z.runs.size > 0 ? c.in<std::int64_t>(c.inputs.size() - 1) : nullptr;
}

[[nodiscard]] inline LaunchShape ShapeFor(std::int64_t items) {
  return {BlocksFor(items, kThreads), kThreads};
}

// Channels per thread: a vector if rows consist of whole vectors.
template <typename T, typename... Pointers>
[[nodiscard]] int WidthFor(const NormSize& z, Pointers... pointers) {
  constexpr int kVector = kVectorWidth<T>;
  return z.channels % kVector == 0 && (IsVectorAligned(pointers) && ...) ? kVector : 1;
}

}  // namespace gaccd::batch_norm
