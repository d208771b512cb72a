// Iteration order of the kernels of rearrange.h.
#pragma once

#include "daemon/ops/layout/rearrange.h"
#include "daemon/ops/strided_nest.h"

namespace gaccd {

// Operand 0 is x, from `first` on, operand 1 is y. Elements are in the order of y; with
// `repeats_outside`, repeating dimensions are outermost.
struct RearrangeNest {
  StridedNest nest;
  std::int64_t first = 0;
};

[[nodiscard]] inline RearrangeNest MakeNest(const Rearrangement& order, bool repeats_outside) {
  Shape steps(order.from.size());
  std::int64_t elements = 1;
  for (std::size_t s = steps.size(); s-- > 0; elements *= order.from[s]) steps[s] = elements;
  Shape places(order.to.size());
  elements = 1;
  for (std::size_t d = places.size(); d-- > 0; elements *= order.to[d].size) places[d] = elements;
  RearrangeNest made;
  for (const bool repeats : {true, false}) {
    for (std::size_t d = 0; d < places.size(); ++d) {
      const Rearrangement::Dimension& one = order.to[d];
      if (repeats_outside ? (one.source < 0) != repeats : repeats) continue;
      const std::int64_t step = one.source < 0 ? 0 : steps[static_cast<std::size_t>(one.source)];
      made.first += one.start * step;
      made.nest.Add(one.size, one.step * step, places[d]);
    }
  }
  return made;
}

}  // namespace gaccd
