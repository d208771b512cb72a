// What the kernels of batch norms on the GPU share: which rows of a micro-batch belong to which
// group, and the moments of a group. Only for kernels, see launch.h.
#pragma once

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/norm/batch_norm.h"

namespace gaccd::batch_norm {

// What a micro-batch has of one group of samples. group < 0: it belongs to none, which is an error.
struct Part {
  std::int64_t group = 0;
  std::int64_t first = 0;  // row of x
  std::int64_t rows = 0;
};

struct NormSize {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  NormRuns runs = {};

  // At most: where there are runs, the first and the last one may be partly in other micro-batches.
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t parts() const {
    return runs.size == 0 ? 1 : (runs.samples + runs.size - 2) / runs.size + 1;
  }
  [[nodiscard]] GACCD_HOST_DEVICE std::int64_t rows_of_sample() const {
    return rows / runs.samples;
  }
  // position: of the first sample in the update; null without runs.
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
  [[nodiscard]] __device__ std::int64_t PartOf(std::int64_t row,
                                               const std::int64_t* position) const {
    if (runs.size == 0) return 0;
    return (*position + row / rows_of_sample()) / runs.size - *position / runs.size;
  }
};

struct Moments {
  double mean;
  double rstd;
};
__device__ inline Moments MomentsOf(const double* sums, std::int64_t channels, std::int64_t channel,
                                    double eps) {
  const double n = sums[2 * channels];
  const double mean = sums[channel] / n;
  const double variance = sums[channels + channel] / n - mean * mean;
  return {mean, 1 / sqrt((variance < 0 ? 0 : variance) + eps)};
}
// Sums of a part's group; null: it has none.
__device__ inline const double* SumsOf(const double* all, const Part& part, std::int64_t channels) {
  return part.group < 0 ? nullptr : all + part.group * (2 * channels + 1);
}

__device__ inline std::int64_t Thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

[[nodiscard]] inline NormSize SizeOf(const ValueSpec& x, const NormRuns& runs) {
  const std::int64_t channels = x.shape.back();
  return {.rows = Elements(x.shape) / channels, .channels = channels, .runs = runs};
}

[[nodiscard]] inline const std::int64_t* PositionOf(const CallKernel::Call& c, const NormSize& z) {
  return z.runs.size > 0 ? c.in<std::int64_t>(c.inputs.size() - 1) : nullptr;
}

[[nodiscard]] inline LaunchShape ShapeFor(std::int64_t items) {
  return {BlocksFor(items, kThreads), kThreads};
}

}  // namespace gaccd::batch_norm
