// StridedNest: iteration over the elements of a multi-dimensional value, with their offsets in up
// to three operands. Plain data, for CPU loops and GPU kernels.
#pragma once

#include <cstdint>

#include "daemon/tensor/host_device.h"

namespace gaccd {

struct StridedNest {
  static constexpr int kMaxRank = 12;
  static constexpr int kOperands = 3;
  struct Dimension {
    std::int64_t size = 1;
    std::int64_t steps[kOperands] = {};  // in elements, per index; 0: the same element
  };

  Dimension dimensions[kMaxRank] = {};  // outermost first
  int rank = 0;
  std::int64_t elements = 1;

  // Adds an innermost dimension; joined with the last one if contiguous. REQUIRES: at most kMaxRank
  // dimensions.
  void Add(std::int64_t size, std::int64_t a, std::int64_t b = 0, std::int64_t c = 0) {
    elements *= size;
    if (size == 1) return;
    if (rank > 0) {
      Dimension& last = dimensions[rank - 1];
      if (last.steps[0] == a * size && last.steps[1] == b * size && last.steps[2] == c * size) {
        last = {last.size * size, {a, b, c}};
        return;
      }
    }
    dimensions[rank++] = {size, {a, b, c}};
  }

  // Adds the offsets of element `index` to `at`. The outermost dimension needs no division, which
  // saves time, as divisions dominate.
  GACCD_HOST_DEVICE void Place(std::int64_t index, std::int64_t (&at)[kOperands]) const {
    for (int d = rank - 1; d >= 0; --d) {
      std::int64_t i = index;
      if (d > 0) {
        index /= dimensions[d].size;
        i -= index * dimensions[d].size;
      }
      for (int o = 0; o < kOperands; ++o) at[o] += i * dimensions[d].steps[o];
    }
  }
};

// Calls run(at, dimension) for each run of the innermost dimension, in element order; at: the
// offsets of its first element.
template <typename Run>
void ForEachRun(const StridedNest& nest, const Run& run) {
  if (nest.elements == 0) return;
  const StridedNest::Dimension inner =
      nest.rank > 0 ? nest.dimensions[nest.rank - 1] : StridedNest::Dimension{};
  std::int64_t index[StridedNest::kMaxRank] = {};
  std::int64_t at[StridedNest::kOperands] = {};
  for (int d = 0; d >= 0;) {
    run(at, inner);
    for (d = nest.rank - 2; d >= 0; --d) {
      const StridedNest::Dimension& outer = nest.dimensions[d];
      for (int o = 0; o < StridedNest::kOperands; ++o) at[o] += outer.steps[o];
      if (++index[d] < outer.size) break;
      for (int o = 0; o < StridedNest::kOperands; ++o) at[o] -= outer.steps[o] * outer.size;
      index[d] = 0;
    }
  }
}

}  // namespace gaccd
