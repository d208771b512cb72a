// Iteration plan of the reduce_sum kernels over x: in units of `width` consecutive values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "daemon/device/cuda/launch.h"
#include "daemon/device/cuda/reduce.h"
#include "daemon/ops/pointwise/combine.h"

namespace gaccd {

// The units that one value of y sums; a thread processes every stride-th. Up to two dimensions,
// iterated without divisions. Steps: of x and of the factor.
struct SumWalk {
  std::int64_t units = 0;
  std::int64_t inner = 1;  // size of the inner dimension in units
  std::int64_t inner_steps[2] = {};
  std::int64_t outer_steps[2] = {};
  std::int64_t stride = 1;
  std::int64_t skipped = 0;  // advance in the inner dimension per stride
  std::int64_t skip_steps[2] = {};
  std::int64_t wrap_steps[2] = {};  // additional step at the end of the inner dimension
};

enum class SumKind : std::uint8_t {
  kColumns,  // y has the innermost dimension of x: a thread sums `width` columns of some rows
  kRows,     // the innermost dimension is summed: by a warp or a block per value of y
  kAny,      // one thread per value of y
};

struct SumPlan {
  SumKind of = SumKind::kAny;
  int width = 1;
  StridedNest kept;  // without the columns
  SumWalk walk;
  std::int64_t elements = 0;  // number of elements of y
  std::int64_t parts = 1;     // number of parts of the units; a second kernel adds the parts
  unsigned blocks = 1;
  // kColumns. A tile has `lanes` adjacent units of a row, and `rows` rows at a time.
  std::int64_t columns = 0;
  std::int64_t tiles = 0;
  std::int64_t factor_step = 0;  // step from column to column
  unsigned lanes = 0;
  unsigned rows = 0;
  unsigned team = 0;  // kRows: threads per value

  [[nodiscard]] std::size_t scratch_bytes() const {
    return parts > 1 ? static_cast<std::size_t>(parts * elements) * sizeof(double) : 0;
  }
};

constexpr std::int64_t kSumBlocks = 3;  // resident blocks per multiprocessor

// REQUIRES: summed has one or two dimensions.
[[nodiscard]] inline SumWalk WalkOver(const StridedNest& summed, std::int64_t width,
                                      std::int64_t stride) {
  const StridedNest::Dimension& inner = summed.dimensions[summed.rank - 1];
  const StridedNest::Dimension outer =
      summed.rank > 1 ? summed.dimensions[0] : StridedNest::Dimension{};
  SumWalk walk;
  walk.units = summed.elements / width;
  walk.inner = inner.size / width;
  walk.stride = stride;
  walk.skipped = stride % walk.inner;
  for (int o = 0; o < 2; ++o) {
    walk.inner_steps[o] = inner.steps[o] * width;
    walk.outer_steps[o] = outer.steps[o];
    walk.skip_steps[o] =
        walk.skipped * walk.inner_steps[o] + stride / walk.inner * walk.outer_steps[o];
    walk.wrap_steps[o] = walk.outer_steps[o] - walk.inner * walk.inner_steps[o];
  }
  return walk;
}

// Enough parts for the GPU, each with some units per thread.
[[nodiscard]] inline std::int64_t SumParts(const SumWalk& walk, std::int64_t of_others,
                                           int multiprocessors) {
  constexpr std::int64_t kUnitsOfThread = 8;
  const std::int64_t most = walk.units / (walk.stride * kUnitsOfThread);
  const std::int64_t wanted = multiprocessors * kSumBlocks / of_others;
  return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, most));
}

inline void PlanColumns(const SumNests& nests, int multiprocessors, SumPlan& plan) {
  const StridedNest::Dimension& columns = nests.kept.dimensions[nests.kept.rank - 1];
  plan.of = SumKind::kColumns;
  plan.columns = columns.size;
  plan.factor_step = columns.steps[1];
  plan.kept.elements /= columns.size;
  --plan.kept.rank;
  const std::int64_t units = columns.size / plan.width;
  plan.tiles = (units + kWarp - 1) / kWarp;
  plan.lanes = static_cast<unsigned>((units + plan.tiles - 1) / plan.tiles);
  plan.rows = kThreads / plan.lanes;
  plan.walk = WalkOver(nests.summed, 1, plan.rows);
  const std::int64_t tiles = plan.kept.elements * plan.tiles;
  plan.parts = SumParts(plan.walk, tiles, multiprocessors);
  plan.blocks = static_cast<unsigned>(
      std::min<std::int64_t>(tiles * plan.parts, multiprocessors * 2 * kSumBlocks));
}

inline void PlanRows(const SumNests& nests, int multiprocessors, SumPlan& plan) {
  plan.of = SumKind::kRows;
  const std::int64_t units = nests.summed.elements / plan.width;
  const bool by_warps = plan.elements >= multiprocessors * kSumBlocks * std::int64_t{kWarps} ||
                        units < 2 * std::int64_t{kThreads};
  plan.team = by_warps ? kWarp : kThreads;
  plan.walk = WalkOver(nests.summed, plan.width, plan.team);
  if (!by_warps) plan.parts = SumParts(plan.walk, plan.elements, multiprocessors);
  plan.blocks = std::min(static_cast<unsigned>(multiprocessors * 2 * kSumBlocks),
                         BlocksFor(plan.elements * plan.parts, kThreads / plan.team));
}

// width: 1, or the number of values that a thread loads at once if alignment permits.
[[nodiscard]] inline SumPlan PlanSum(const SumNests& nests, int width, int multiprocessors) {
  constexpr std::int64_t kMinUnits = 32;  // fewer are left to one thread
  SumPlan plan;
  plan.kept = nests.kept;
  plan.elements = nests.kept.elements;
  const StridedNest& summed = nests.summed;
  if (plan.elements == 0 || summed.rank < 1 || summed.rank > 2 || summed.elements < kMinUnits) {
    return plan;
  }
  const StridedNest::Dimension& inner = summed.dimensions[summed.rank - 1];
  const bool rows = inner.steps[0] == 1;
  const StridedNest::Dimension& along = rows ? inner : nests.kept.dimensions[nests.kept.rank - 1];
  // Then all other steps, including those of the factor, are multiples of the size.
  if (along.size % width == 0 && along.steps[1] == 1) plan.width = width;
  if (rows) {
    PlanRows(nests, multiprocessors, plan);
  } else {
    PlanColumns(nests, multiprocessors, plan);
  }
  return plan;
}

}  // namespace gaccd
