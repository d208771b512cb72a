// Iteration order of the kernels of combine.h.
#pragma once

#include "daemon/ops/strided_nest.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

// Elements from one index to the next; 0 in dimensions of size 1.
[[nodiscard]] inline Shape BroadcastSteps(const Shape& shape) {
  Shape steps(shape.size(), 0);
  std::int64_t elements = 1;
  for (std::size_t d = shape.size(); d-- > 0; elements *= shape[d]) {
    if (shape[d] != 1) steps[d] = elements;
  }
  return steps;
}

// Over y; operands a, b and y. REQUIRES: shapes of the same rank.
[[nodiscard]] inline StridedNest CombineNest(const Shape& a, const Shape& b, const Shape& y) {
  const Shape of_a = BroadcastSteps(a);
  const Shape of_b = BroadcastSteps(b);
  const Shape of_y = BroadcastSteps(y);
  StridedNest nest;
  for (std::size_t d = 0; d < y.size(); ++d) nest.Add(y[d], of_a[d], of_b[d], of_y[d]);
  return nest;
}

// Nests over the elements of y, and for each of them over the elements of x that it sums; operands
// x, factor and y.
struct SumNests {
  StridedNest kept;
  StridedNest summed;
};
[[nodiscard]] inline SumNests MakeSumNests(const Shape& x, const Shape& factor, const Shape& y) {
  const Shape of_x = BroadcastSteps(x);
  const Shape of_factor = BroadcastSteps(factor);
  const Shape of_y = BroadcastSteps(y);
  SumNests nests;
  for (std::size_t d = 0; d < y.size(); ++d) {
    StridedNest& nest = y[d] == x[d] ? nests.kept : nests.summed;
    nest.Add(x[d], of_x[d], of_factor[d], of_y[d]);
  }
  return nests;
}

}  // namespace gaccd
